"""A LangChain agent whose tool loops: Switchgear warns it, then ends the run. Needs no key."""

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool

from switchgear import Panel
from switchgear.integrations.langchain import guard


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"No results for {query!r}."


class StuckModel(GenericFakeChatModel):
    """Stands in for ChatOpenAI: always wants the same search."""

    def bind_tools(self, tools: object, **options: object) -> "StuckModel":
        return self


call = AIMessage("", tool_calls=[{"name": "search", "args": {"query": "colour"}, "id": "1"}])
model = StuckModel(messages=iter(call.model_copy, None))
guarded = guard(panel=Panel("memory:"), on_refusal="answer")
agent = create_agent(model, [search], middleware=[guarded])
result = agent.invoke({"messages": [HumanMessage("What is colour?")]}, {"recursion_limit": 100})
print(result["messages"][-1].text)
