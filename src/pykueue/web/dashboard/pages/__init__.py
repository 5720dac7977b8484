"""The pages: what each needs rights for, and what it shows to a user with some rights.

A page is a value (`base.Page`), so that other packages can add theirs: `server.Dashboard(pages=...)`.
"""
