// The strategies that this gateway offers, and what each is called here.

const NAMES = {
  auto: "Automatic",
  mapreduce: "Map-reduce",
  reference: "Map-reduce as published",
  langchain: "Map-reduce summaries as in LangChain",
  refine: "Refine, chunk after chunk",
  "map-rerank": "Map and rerank",
  truncate: "Truncate to what fits",
  "truncate-head": "Truncate, keep the beginning",
  "truncate-tail": "Truncate, keep the end",
  direct: "Direct, in one call",
  summarize: "Summarise",
  "chain-of-agents": "Chain of agents",
  longagent: "LongAgent",
  tables: "Tables and sums",
  compress: "Compress, then read",
};

export const strategyName = (name) => NAMES[name.replaceAll("_", "-")] ?? name;

/** Names in the gateway's order, `auto` first; the served model itself is no strategy. */
export async function listStrategies(api) {
  const models = await api.models();
  const names = models.filter((model) => model.longfold?.kind === "strategy").map((model) => model.id);
  return names.length ? [...new Set(names)] : ["auto", "mapreduce"];
}
