"""Other packages under test, one file each. They are imported only when a subject is made."""
