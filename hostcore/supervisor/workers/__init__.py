"""The worker processes of an attempt: started, heard, ended, and what their deaths mean."""
