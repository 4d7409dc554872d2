"""placeholder"""


def page() -> str:
    return ""
