"""Units of work in threads of this process, or by the workers of a Dask cluster."""
