import sysconfig

import pytest

from kctl_agent.storage.causes import MAX_CLASS_CHARACTERS, cause_of, public_class, sentence_of, traceback_in

LIBRARY = f"{sysconfig.get_path('stdlib')}/json/decoder.py"
CHAIN = f"""the handler shop:handle raised NoCustomer: 17 on t-0 offset 3 (1 message)
Traceback (most recent call last):
  File "/srv/shop.py", line 3, in find
    return json.loads(text)
  File "{LIBRARY}", line 9, in decode
    raise JSONDecodeError
json.decoder.JSONDecodeError: x

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/srv/shop.py", line 12, in handle
    raise NoCustomer(17) from error
shop.NoCustomer: 17"""


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (CHAIN, ("NoCustomer", "shop.py:12")),
        ("the handler shop:handle raised ValueError on t-0 offset 3 (1 message)", ("ValueError", "")),
        ("KeyError: 'id'", ("KeyError", "")),
        ("shop.errors.NoCustomer: 17", ("NoCustomer", "")),
        ("Traceback (most recent call last):\n  …\nKeyError: 1", ("KeyError", "")),
        ("the handler shop:handle returned 7 values for 9 messages on t-0 offsets 0..8 (9 messages)",
         ("the handler shop:handle returned N values for N messages", "")),
        ("no customer 17", ("no customer N", "")),
        ("no <Row object at 0x7f3ab00e5d20>", ("no <Row object at N>", "")),
        (f'no\nFile "x", line {"1" * 5000}', ("no", "x:111111111")),
        ("the column id is null", ("the column id is null", "")),
        ("", ("no reason", "")),
        ("x y" * 100, (("x y" * 100)[:MAX_CLASS_CHARACTERS], "")),
        (f'hangs\n  File "shop.py", line 5, in handle\n  File "{LIBRARY}", line 1, in x', ("hangs", "shop.py:5")),
        ('raised in a group\n  |   File "/srv/shop.py", line 8, in one', ("raised in a group", "shop.py:8")),
    ],
)  # fmt: skip
def test_the_class_and_the_last_line_of_the_users_code_are_found(error: str, cause: tuple[str, str]) -> None:
    assert cause_of(error) == cause


def test_a_text_is_a_sentence_and_a_traceback() -> None:
    assert sentence_of(CHAIN).startswith("the handler shop:handle raised NoCustomer")
    assert str(traceback_in(CHAIN)).startswith("Traceback")
    assert (sentence_of("no"), traceback_in("no")) == ("no", None)
    bare = "Traceback (most recent call last):\n  …\nKeyError: 1"
    assert (sentence_of(bare), traceback_in(bare)) == ("KeyError: 1", bare)


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        ("the handler shop:handle raised ValueError: card 4111 on t-0 offset 3 (1 message)", "ValueError"),
        (CHAIN, "NoCustomer"),
        ("requests.exceptions.ReadTimeout: https://shop/?token=sk_live", "ReadTimeout"),
        ("the handler returned False", "returned False"),
        ("the handler shop:handle did not return within 0.5 s on t-0 offset 3 (1 message)", "timed out"),
        ("card 4111 of Bob was refused", "a reason from your code"),
        ("Bob: refused", "a reason from your code"),
        ("sk_live_4eC39", "a reason from your code"),
        (
            "the handler h:h returned 'sk' instead of a list of bools on t-0 offset 3 (1 message)",
            "a reason from your code",
        ),
    ],
)
def test_what_anybody_may_see_of_an_error_is_its_class_or_the_kind_of_failure(error: str, seen: str) -> None:
    assert public_class(cause_of(error).error_class) == seen
