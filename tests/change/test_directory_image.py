"""Directory images and the steps between them: done in order, the steps turn one image into the other."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kseg.change.plan.content import Content, Fresh, Made, Piece, Span, content_of, length_of
from kseg.change.plan.directory_image import DirectoryImage, steps_between
from kseg.change.plan.steps import FileIdentity, Remove, Rename, Step, Truncate, Write, step_row, step_words

LOG_0, LOG_9 = f"{0:020}.log", f"{9:020}.log"
INDEX_0, SNAPSHOT_9 = f"{0:020}.index", f"{9:020}.snapshot"
NAMES = (LOG_0, LOG_9, INDEX_0, SNAPSHOT_9, "leader-epoch-checkpoint", f"{LOG_9}.swap", "x")


def image_of(**sizes: int) -> DirectoryImage:
    return DirectoryImage.of(FileIdentity(name, size, 0, 0) for name, size in sizes.items())


class Model:
    """A directory as lists of cells, one for each byte, and the effect of the steps as `plan.steps` defines it."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.found = {name: [(name, at) for at in range(size)] for name, size in sizes.items()}
        self.files: dict[str, list[tuple[str, int]]] = dict(self.found)

    def cells(self, content: Content) -> list[tuple[str, int]]:
        cells: list[tuple[str, int]] = []
        for piece in content:
            if isinstance(piece, Span):
                cells += self.found[piece.name][piece.position : piece.end_position]
                assert piece.end_position <= len(self.found[piece.name])
            else:
                assert isinstance(piece, Fresh)
                cells += [("", byte) for byte in piece.data]
        return cells

    def take(self, step: Step) -> None:
        match step:
            case Write():
                self.files[step.name] = self.cells(step.content)
            case Truncate():
                assert step.size_bytes <= len(self.files[step.name])
                self.files[step.name] = self.files[step.name][: step.size_bytes]
            case Rename():
                self.files[step.new_name] = self.files.pop(step.name)
            case Remove():
                del self.files[step.name]


@st.composite
def changes(draw: st.DrawFn) -> tuple[dict[str, int], DirectoryImage]:
    """Sizes of the original files, and an image after random operations."""
    sizes = draw(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6), max_size=6))
    image = image_of(**sizes)
    for _ in range(draw(st.integers(0, 6))):
        there = list(image)
        operation = draw(st.sampled_from(("write", "fresh", "truncate", "rename", "remove")))
        if operation == "fresh":
            image.write(draw(st.sampled_from(NAMES)), draw(st.binary(max_size=4)))
        elif operation == "write" and sizes:
            pieces = []
            for name in draw(st.lists(st.sampled_from(sorted(sizes)), max_size=3)):
                start = draw(st.integers(0, sizes[name]))
                pieces.append(Span(name, start, draw(st.integers(0, sizes[name] - start))))
            image.write(draw(st.sampled_from(NAMES)), pieces)
        elif there:
            name = draw(st.sampled_from(there))
            if operation == "truncate":
                image.truncate(name, draw(st.integers(0, image.size_bytes(name))))
            elif operation == "remove":
                image.remove(name)
            else:
                new_name = draw(st.sampled_from(NAMES))
                if new_name != name:
                    image.rename(name, new_name)
    return sizes, image


@pytest.mark.slow
@given(changes())
@settings(max_examples=500)
def test_steps_between_two_images_turn_one_into_the_other(
    change: tuple[dict[str, int], DirectoryImage],
) -> None:
    sizes, after = change
    before = image_of(**sizes)
    steps = steps_between(before, after, {name: f"why {name}" for name in (*before, *after)})
    model = Model(sizes)
    for step in steps:
        model.take(step)
    assert model.files == {name: model.cells(after.content(name)) for name in after}
    assert bool(steps) == (before != after)
    for step in steps:
        assert step_row(step)["why"] == step.why and step.why in step_words(step)


@given(changes())
def test_log_is_never_changed_while_its_index_exists(
    change: tuple[dict[str, int], DirectoryImage],
) -> None:
    """If index and log both change, a broker may find the log without its index, but never with an index of other bytes."""
    sizes, after = change
    before = image_of(**sizes)
    steps = steps_between(before, after, dict.fromkeys((*before, *after), "why"))
    written = [step.name for step in steps if isinstance(step, Write)]
    if LOG_0 in written and INDEX_0 in written:
        assert written.index(LOG_0) < written.index(INDEX_0)
    removed = [step.name for step in steps if isinstance(step, Remove)]
    if LOG_0 in removed and INDEX_0 in removed:
        assert removed.index(INDEX_0) < removed.index(LOG_0)


@given(
    st.lists(
        st.one_of(
            st.builds(Span, st.sampled_from("ab"), st.integers(0, 5), st.integers(0, 5)),
            st.builds(Fresh, st.binary(max_size=3)),
        )
    )
)
def test_shortest_form_of_a_content_has_the_same_bytes(pieces: list[Span | Fresh]) -> None:
    data = {"a": b"0123456789", "b": b"abcdefghij"}

    def laid_out(content: Sequence[Piece]) -> bytes:
        found = []
        for piece in content:
            assert not isinstance(piece, Made)
            if isinstance(piece, Span):
                found.append(data[piece.name][piece.position : piece.end_position])
            else:
                found.append(piece.data)
        return b"".join(found)

    content = content_of(pieces)
    assert laid_out(content) == laid_out(pieces)
    assert length_of(content) == len(laid_out(content))
    assert content_of(content) == content and all(piece.length for piece in content)


def test_truncated_files_are_not_copied_and_moved_files_are_renamed() -> None:
    before = image_of(**{LOG_0: 100, LOG_9: 50, f"{LOG_9}.swap": 70, INDEX_0: 8})
    after = before.copy()
    after.truncate(LOG_0, 60)
    after.rename(f"{LOG_9}.swap", LOG_9)
    after.truncate(LOG_9, 30)
    assert steps_between(before, after, dict.fromkeys(before, "why")) == (
        Rename(f"{LOG_9}.swap", LOG_9, "why"),
        Truncate(LOG_0, 60, "why"),
        Truncate(LOG_9, 30, "why"),
    )


def test_written_file_has_the_owner_and_time_of_its_source() -> None:
    before = image_of(**{LOG_0: 100, LOG_9: 50})
    after = before.copy()
    after.write(LOG_0, [Span(LOG_0, 0, 10), Span(LOG_0, 20, 10)])
    after.write(LOG_9, [Span(LOG_0, 20, 10), Fresh(b"x")])
    after.write("made", b"anew", like=LOG_9)
    assert [after.like(name) for name in (LOG_0, LOG_9, "made")] == [LOG_0, None, LOG_9]


def test_truncation_beyond_the_file_size_is_an_error() -> None:
    with pytest.raises(ValueError, match="fewer than 101"):
        image_of(**{LOG_0: 100}).truncate(LOG_0, 101)
