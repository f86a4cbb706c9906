// The strategies that this gateway offers, and what each is called here.

const NAMES = {
  auto: "Automatic",
  mapreduce: "Map-reduce",
  reference: "Map-reduce as published",
  langchain: "Map-reduce summaries as in LangChain",
  refine: "Refine, chunk after chunk",
  map_rerank: "Map and rerank",
  truncate: "Truncate to what fits",
  truncate_head: "Truncate, keep the beginning",
  truncate_tail: "Truncate, keep the end",
  direct: "Direct, in one call",
  summarize: "Summarise",
  chain_of_agents: "Chain of agents",
  chain_of_agents_both_ways: "Chain of agents, both ways",
  chain_of_agents_five_orders: "Chain of agents, five orders",
  longagent: "LongAgent",
  lc_boost: "LC-Boost",
};

export const strategyName = (name) => NAMES[name] ?? name;

/** {name, steps} in the gateway's order, `auto` first; the served model itself is no strategy. */
export async function listStrategies(api) {
  const models = await api.models();
  const strategies = models.filter((model) => model.longfold?.kind === "strategy");
  return strategies.map(({ id, longfold }) => ({ name: id, steps: longfold.steps ?? [] }));
}
