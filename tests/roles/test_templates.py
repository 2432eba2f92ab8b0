"""Role prompts as files: what loads, what is refused, how fields are filled in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rti import ConfigError
from rti.roles import ROLES, Template, load_template

HEAD = '---\nmode = "chat"\nanswer = "json"\n---\n'


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("source", ["rti.roles", "rti_pocket"])
def test_the_shipped_templates_load(role, source):
    template = load_template(role, source)
    assert template.role == role
    assert template.answer == ("turn" if role == "corrector" else template.answer)
    assert "[[history]]" in template.text
    assert len(template.digest) == 16
    # Only the judges are told what counts as success.
    assert ("{evidence}" in template.text) == (role != "corrector")


def test_a_folder_overrides_and_the_digest_names_its_text(tmp_path):
    (tmp_path / "validator.txt").write_text(f"{HEAD}# user\nJudge [[draft]]: {{evidence}}\n")
    template = load_template("validator", str(tmp_path))
    assert template.text == "# user\nJudge [[draft]]: {evidence}"
    first = template.digest
    assert load_template("validator", str(tmp_path)).digest == first
    (tmp_path / "validator.txt").write_text(f"{HEAD}# user\nJudge [[draft]]: {{evidence}}!\n")
    assert load_template("validator", str(tmp_path)).digest != first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, r"no readable validator.txt in there"),
        (b"\xff\xfe", "no readable validator.txt in there"),
        ("# user\nhello", "must begin with options between two lines of '---'"),
        ('---\nmode = "chat"\n# user\n', "must begin with options between two lines"),
        (
            "---\nmode = chat\n---\n# user\n",
            "Known options: mode, .* thinking",
        ),
        (
            "---\ncolour = 3\n---\n# user\n",
            "Known options: mode, .* thinking",
        ),
        ('---\nrole = "verifier"\n---\n# user\n', "Known options"),
        ('---\nmode = "poem"\n---\n# user\n', "mode = 'poem': must be 'continue' or 'chat'"),
        ('---\nanswer = "turn"\n---\n# user\n', "answer = 'turn': for a validator it must be in"),
        ('---\nanswer = "words"\nyes = "bad"\n---\n# user\n', "needs the words `yes` and `no`"),
        ('---\nanswer = "words"\nyes = "a"\nno = 3\n---\n# user\n', "no = 3: must be"),
        ('---\nmode = "chat"\n---\nhello', "a chat template needs a line '# user'"),
        ("---\nmax_new_tokens = 0\n---\n# user\n", "max_new_tokens = 0: must be"),
        ('---\nmax_new_tokens = "many"\n---\n# user\n', "max_new_tokens = 'many': must be"),
        ("---\nmax_new_tokens = 1.5\n---\n# user\n", "max_new_tokens = 1.5: must be"),
        ("---\nmax_new_tokens = true\n---\n# user\n", "max_new_tokens = True: must be"),
        ("---\nmode = []\n---\n# user\n", "mode = \\[\\]: must be"),
        ('---\nthinking = "loud"\n---\n# user\n', "thinking = 'loud': must be 'auto'"),
        ('---\nmode = "continue"\n---\n[[observations]]', "is for chat templates"),
    ],
)
def test_a_template_that_cannot_be_used_is_a_clear_error(tmp_path, text, message):
    if text is not None:
        data = text if isinstance(text, bytes) else text.encode()
        (tmp_path / "validator.txt").write_bytes(data)
    with pytest.raises(ConfigError, match=message) as caught:
        load_template("validator", str(tmp_path))
    assert "validator" in str(caught.value)


@pytest.mark.parametrize(
    "source", ["./nowhere", "no_such_package", "os", "../x", "a/b", "rti_grpo", "x:y"]
)
def test_prompts_that_are_nowhere_are_a_clear_error(source):
    with pytest.raises(ConfigError, match=r"prompts = '"):
        load_template("validator", source)


LETTERS = 'ab{}[]#"\\ \n.é東🙂\x00\u2028'
values = st.text(LETTERS, max_size=12) | st.sampled_from(
    ["{evidence}", "{direction}", "[[draft]]", "[[history]]", "{fence}", "# system", "{", "}}"]
)


@given(st.dictionaries(st.sampled_from(["evidence", "direction", "kind", "fence"]), values))
def test_fields_are_filled_in_one_pass(fields):
    template = Template("validator", "{evidence}|{direction}|{kind}|{fence}|{other}|{}", "d")
    expected = [fields.get(n, "") for n in ("evidence", "direction", "kind", "fence")]
    assert template.fill(fields) == "|".join([*expected, "{other}", "{}"])
