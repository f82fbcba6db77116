"""The canvas: JavaScript that draws it, and the one place that knows it and Streamlit."""
