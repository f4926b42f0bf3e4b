"""The job: text, document, checked specification.

Door:

    load_job (load)                  file or mapping -> JobSpec, or all errors with pointers and files
    read_job, read_file (files)      job file with its includes -> Document, and its plain content
    Document (document)              profile, ``--set`` and origins over a job
    JobSpec, job_view (spec)         every key of a job; the view for plugins
    check_data, with_brought (data)  rules that need the data of the trainer; the data that it brings
    keep_secrets, job_warnings (rules)
    job_differences (differences)    places in which a job cannot continue another
    structure (structure)            plain JSON -> attrs class, strictly, with all errors at once
    json_schema, job_schema, file_schema (schema)
    checked, to_plain (json_values)  plain JSON, and attrs classes as such

Forms of settings: :mod:`hostcore.job.forms`.
"""
