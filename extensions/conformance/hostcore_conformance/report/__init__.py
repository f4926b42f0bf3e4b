"""What came of the checks, as files: JSON, JUnit XML, a badge."""
