"""Records: kept, read as tables, compared, imported, published."""
