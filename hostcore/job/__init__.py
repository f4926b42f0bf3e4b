"""The job: text, document, checked specification.

Door:

    load_job (load)                  file or mapping -> JobSpec, or all errors with pointers and files
    read_job, read_file (files)      job file with its includes -> Document, and its plain content
    Document (document)              profile, ``--set`` and origins over a job
    JobSpec, job_view (spec)         every key of a job; the view for plugins
    with_brought, chosen_split (data)              data that the trainer brings; data to evaluate
    check_data, keep_secrets, job_warnings (rules) rules that need the data, or values of secrets
    job_differences (differences)    places in which a job cannot continue another
    structure, json_schema (forms)   plain JSON -> attrs class, strictly, with all errors at once; its JSON Schema
    job_schema, file_schema (schema) schemas of jobs with the settings of plugins, and of job files
    checked, to_plain (json_values)  plain JSON, and attrs classes as such

The way of a key to its type, its error message and its schema: :mod:`hostcore.job.forms`.
"""
