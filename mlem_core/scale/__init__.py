"""Where units of work run: in threads of this process, or by the workers of a Dask cluster."""
