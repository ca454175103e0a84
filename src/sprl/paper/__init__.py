"""The paper, reproduced: its tables and figures as runs (recipes), made (bench) and shown (tables, figures) from records."""
