"""Files of tensors: whole or an error, nothing taken but what is there."""

import pytest
import torch
from safetensors.torch import load_file

from sprl.tensors import KINDS, Source, plain, write


def written(path, tensors, **words):
    with path.open("wb") as file:
        write(file, tensors, words)


def test_what_is_taken_is_what_was_written_laid_out_as_asked(tmp_path):
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.arange(10)[2:5]
    written(tmp_path / "a", {"x": plain(x), "y": plain(y), "none": torch.zeros(0)}, words="ä")
    source = Source(tmp_path / "a")
    assert source.words == {"words": "ä"}
    taken = source.take("x", x)
    assert torch.equal(taken, x)
    assert taken.stride() == x.stride()
    assert source.take("y", torch.zeros(3, dtype=torch.int64)).tolist() == [2, 3, 4]
    assert source.left.keys() == {"none"}


def test_a_tensor_is_taken_once_and_only_as_what_it_is(tmp_path):
    written(tmp_path / "a", {"x": torch.zeros(2, 3)})
    source = Source(tmp_path / "a")
    for other in (torch.zeros(3, 2), torch.zeros(2, 3, dtype=torch.int64)):
        with pytest.raises(ValueError, match="x is not"):
            source.take("x", other)
    source.take("x", torch.zeros(2, 3))
    with pytest.raises(ValueError, match="it lacks x"):
        source.take("x", torch.zeros(2, 3))


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (3, 5)], ids=str)
def test_the_library_reads_what_we_write(tmp_path, dtype, shape):
    tensors = {"odd": torch.ones(3, dtype=torch.uint8), "x": torch.randint(0, 2, shape).to(dtype), "y": torch.randn(2)}
    written(tmp_path / "a", tensors, words="ä")
    found = load_file(tmp_path / "a")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_a_full_disk_is_an_error_of_the_system():
    with pytest.raises(OSError, match="No space left"), open("/dev/full", "wb") as file:
        write(file, {"x": torch.zeros(10**6)}, {})
