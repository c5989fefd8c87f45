"""What compile() is made of: the pipeline, capture of a function, its versions, its segments."""
