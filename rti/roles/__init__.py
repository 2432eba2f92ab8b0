"""What plug-ins need that play a role with a language model: prompts out, answers back in.

from rti.roles import RolePrompt, load_template, read_verdict

prompt = RolePrompt(load_template("verifier"), context.renderer)
ids = prompt.ids(history, draft, correction, evidence=evidence.text)
...                                                   # ask somebody
verdict = read_verdict(prompt.template, prompt.text(reply_ids))
"""

from rti.roles.answers import SCHEMAS, read_diagnosis, read_verdict, schema_of
from rti.roles.prompts import RolePrompt, without_thought
from rti.roles.templates import ROLES, Template, load_template, prompts_source

__all__ = [
    "ROLES", "SCHEMAS", "RolePrompt", "Template", "load_template", "prompts_source",
    "read_diagnosis", "read_verdict", "schema_of", "without_thought",
]  # fmt: skip
