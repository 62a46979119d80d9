"""The learning curve of the demo in a terminal; the image is tested with the command."""

from shmreplay.clients.demo.curve import HEIGHT, WIDTH, curve_lines


def test_a_curve_has_a_column_for_each_episode_while_they_fit() -> None:
    lines = curve_lines([0.0, 100.0, 50.0])
    assert len(lines) == HEIGHT + 1
    assert lines[0] == "  100  █"
    assert lines[HEIGHT // 2] == "       ██"
    assert lines[HEIGHT - 1] == "    0  ██"
    assert lines[HEIGHT].split() == ["1", "episode", "3"]


def test_many_episodes_are_averaged_over_the_columns() -> None:
    lines = curve_lines([10.0] * 500 + [20.0] * 500)
    assert lines[0] == f"   20 {' ' * (WIDTH // 2)}{'█' * (WIDTH // 2)}"
    assert lines[HEIGHT - 1] == f"    0 {'█' * WIDTH}"
    assert lines[HEIGHT].endswith("episode 1,000")
    assert len(lines[HEIGHT]) == 6 + WIDTH


def test_a_terminal_without_blocks_gets_other_characters() -> None:
    assert curve_lines([1.0, 2.0], "ascii")[0] == "    2  #"
    assert all(line.isascii() for line in curve_lines([float(x) for x in range(99)], "latin-1"))


def test_without_an_episode_there_is_no_curve() -> None:
    assert curve_lines([]) == []
    assert curve_lines([0.0])[HEIGHT - 1] == "    0"
