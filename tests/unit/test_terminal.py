import json
import subprocess
import sys
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from kctl.terminal import shown
from tests.terminals import on_a_terminal

ANY = st.text(st.characters() | st.sampled_from("\x1b\x9b\x07\x7f\u202e\u2066\u200b\u2028\r\n\t[]"))


@given(ANY)
def test_nothing_is_left_that_a_terminal_would_act_on(text: str) -> None:
    for letter in shown(text):
        assert letter in "\n\t" or unicodedata.category(letter) not in {"Cc", "Cf", "Cs", "Zl", "Zp", "Cn"}
    assert shown(shown(text)) == shown(text)
    assert "\n" not in shown(text, kept="")


@given(st.dictionaries(ANY, ANY, max_size=3))
def test_a_json_document_stays_the_same_document(document: dict[str, str]) -> None:
    encodable = json.loads(json.dumps(document))

    assert json.loads(shown(json.dumps(encodable, ensure_ascii=False, indent=2))) == encodable


def test_escapes_are_visible_and_ordinary_text_of_any_script_is_as_it_was() -> None:
    assert shown("a\x1b[31mb\x9b\u202ec") == r"a\u001b[31mb\u009b\u202ec"
    assert shown("a\r\nb\tc") == "a\\r\nb\tc"
    assert shown("a\r\nb\tc", kept="") == r"a\r\nb\tc"
    assert shown("\U000e0001") == r"\udb40\udc01"
    for text in ("注文\u3000済", "caf\xe9\xa0!", "Ko\u0308ln", "🙂", "[link=x] [/x]"):
        assert shown(text) == text


def test_progress_is_one_line_of_a_terminal_and_nothing_elsewhere() -> None:
    code = (
        "import sys\nfrom kctl.terminal import *\n"
        "with guarded(), line_of(sys.stderr) as show:\n show('1 of 2\\x9b')\n show('2 of 2')"
    )
    command = sys.executable, "-c", code
    assert subprocess.run(command, capture_output=True, check=True).stderr == b""
    assert on_a_terminal(command=command, code=0) == b"\r1 of 2\\u009b\x1b[K\r2 of 2\x1b[K\r\x1b[K"


def test_a_pipe_gets_the_bytes_as_they_are_and_a_terminal_the_escapes() -> None:
    code = "from kctl.terminal import *\nwith guarded():\n bytes_writer()(b'a\\x1b[2J\\xff\\n')"
    command = sys.executable, "-c", code
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"a\x1b[2J\xff\n"
    assert on_a_terminal(command=command, code=0).decode() == "a\\u001b[2J\ufffd\r\n"
