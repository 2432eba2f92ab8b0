"""Reference agents: one that acts the gold actions out, one that does nothing.

The gold agent reads the answer. It exists to show that the environment can be won, through the
same door as any policy; nothing it says is ever trained on.
"""

from __future__ import annotations

from typing import Any

from rti import Message, Session, ToolCall
from rti_tau2.customer import Scenario
from rti_tau2.session import Setting, Tau2Session
from rti_tau2.telecom import TelecomCustomer

GOODBYE = "Thank you for calling. Is there anything else I can help you with?"
HANDOVER = "YOU ARE BEING TRANSFERRED TO A HUMAN AGENT. PLEASE HOLD ON."
ASKS = {
    "toggle_airplane_mode": "Please toggle airplane mode.",
    "toggle_data": "Please toggle your mobile data.",
    "toggle_roaming": "Please toggle data roaming.",
    "toggle_data_saver_mode": "Please toggle data saver mode.",
    "toggle_wifi": "Please toggle Wi-Fi.",
    "toggle_wifi_calling": "Please toggle Wi-Fi calling.",
    "set_network_mode_preference": "Please set your network mode preference to {mode}.",
    "reseat_sim_card": "Please reseat your SIM card.",
    "reset_apn_settings": "Please reset your APN settings.",
    "reboot_device": "Please reboot your phone.",
    "disconnect_vpn": "Please disconnect your VPN.",
    "grant_app_permission": "Please grant the {permission} permission to the {app_name} app.",
    "make_payment": "Please make the payment.",
    "run_speed_test": "Please run a speed test.",
    "can_send_mms": "Can you try to send an MMS message?",
    "check_status_bar": "Please check your status bar.",
}


def noop(_: Session) -> Message:
    """Do nothing but say goodbye."""
    return Message("assistant", GOODBYE)


def gold(session: Session) -> Message:
    """The next gold action of `session`, provided that all its turns so far were gold too."""
    assert isinstance(session, Tau2Session)
    plan = _plan(session.setting)
    return plan[session.turns] if session.turns < len(plan) else Message("assistant", GOODBYE)


def _plan(setting: Setting) -> list[Message]:
    plan, handed_over, task = [], False, setting.task
    criteria = task.evaluation_criteria
    for action in criteria.actions or []:
        if action.requestor == "assistant":
            call = ToolCall(action.name, dict(action.arguments))
            plan.append(Message("assistant", tool_calls=(call,)))
            handed_over = action.name == "transfer_to_human_agents"
        else:
            plan.append(Message("assistant", ask(action.name, action.arguments)))
    if criteria.communicate_info:
        told = "; ".join(criteria.communicate_info)
        plan.append(Message("assistant", f"Here is what you wanted to know: {told}."))
    telecom = setting.domain == "telecom"
    goal = TelecomCustomer(Scenario.of(task)).goal if telecom else None
    if handed_over:
        plan.append(Message("assistant", HANDOVER))
    elif goal is not None:
        plan.append(Message("assistant", ask(goal.tool, {})))
    return plan


def ask(tool: str, arguments: dict[str, Any]) -> str:
    """Plain words that ask the customer to use one of its own tools."""
    return ASKS[tool].format(**arguments) if tool in ASKS else f"Please use {tool}()."
