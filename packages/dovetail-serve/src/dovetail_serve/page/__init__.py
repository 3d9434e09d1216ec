"""The page for people at ``/``: models, their state and times, and a form to try one."""

from dovetail_serve.page.page import make_page, make_page_app

__all__ = ["make_page", "make_page_app"]
