"""Users are called by name where they have one."""

from shmreplay.base.user_names import user_name


def test_a_user_is_called_by_name_or_by_number() -> None:
    assert user_name(0) == "root"
    assert user_name(4_000_000_000) == "4000000000"
