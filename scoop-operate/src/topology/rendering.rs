//! The topology as a text for programs that draw graphs. Topics and sagas are nodes, the latter in a frame for each service; a launch is an edge with the names of its
//! steps.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Topology;

/// The graph with a number for each node.
struct Graph<'a> {
    topics: BTreeMap<&'a str, usize>,
    sagas: BTreeMap<&'a str, usize>,
    /// The sagas of each service, and those of none.
    services: BTreeMap<Option<&'a str>, BTreeSet<&'a str>>,
    /// From topics to sagas.
    deliveries: BTreeSet<(usize, usize)>,
    /// From sagas to topics, with the names of the steps, and whether such a message was launched.
    launches: BTreeMap<(usize, usize), (BTreeSet<&'a str>, bool)>,
}

impl<'a> Graph<'a> {
    fn new(topology: &'a Topology) -> Self {
        let Topology { handlers, launches, .. } = topology;
        let topics = handlers.iter().map(|it| &*it.topic).chain(launches.iter().map(|it| &*it.topic));
        let sagas = handlers.iter().map(|it| &*it.saga).chain(launches.iter().map(|it| &*it.saga));
        let numbered = |names: BTreeSet<&'a str>| names.into_iter().zip(0..).collect::<BTreeMap<_, _>>();
        let (topics, sagas) = (numbered(topics.collect()), numbered(sagas.collect()));
        let mut edges: BTreeMap<_, (BTreeSet<_>, bool)> = BTreeMap::new();
        for launch in launches {
            let edge = edges.entry((sagas[&*launch.saga], topics[&*launch.topic])).or_default();
            edge.0.insert(&*launch.step);
            edge.1 |= launch.seen_at.is_some();
        }
        let deliveries = handlers.iter().map(|it| (topics[&*it.topic], sagas[&*it.saga])).collect();
        let mut services: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for saga in sagas.keys() {
            let service = handlers.iter().filter(|it| it.saga == *saga).find_map(|it| it.service.as_deref());
            services.entry(service).or_default().insert(*saga);
        }
        Self { topics, sagas, services, deliveries, launches: edges }
    }
}

impl Topology {
    /// The topology as a flowchart of [Mermaid](https://mermaid.js.org), which GitHub and others draw in Markdown.
    ///
    /// An edge from a saga has the names of the steps that launch the messages. It is dotted if the launch is declared only. A
    /// retired saga has a dashed frame.
    ///
    /// ```
    /// # let topology = scoop_operate::Topology::default();
    /// assert!(topology.to_mermaid().starts_with("flowchart LR\n"));
    /// ```
    pub fn to_mermaid(&self) -> String {
        let graph = Graph::new(self);
        let mut text = "flowchart LR\n    classDef retired stroke-dasharray: 4\n".to_owned();
        for (topic, number) in &graph.topics {
            let _ = writeln!(text, "    t{number}([\"{}\"])", of_mermaid(topic));
        }
        for (number, (service, sagas)) in graph.services.iter().enumerate() {
            let service = service.map(of_mermaid);
            text.extend(service.iter().map(|service| format!("    subgraph v{number}[\"{service}\"]\n")));
            for saga in sagas {
                let class = if self.is_retired(saga) { ":::retired" } else { "" };
                let _ = writeln!(text, "    s{}[\"{}\"]{class}", graph.sagas[saga], of_mermaid(saga));
            }
            text.extend(service.map(|_| "    end\n"));
        }
        for (topic, saga) in &graph.deliveries {
            let _ = writeln!(text, "    t{topic} --> s{saga}");
        }
        for ((saga, topic), (steps, is_seen)) in &graph.launches {
            let arrow = if *is_seen { "-->" } else { "-.->" };
            let _ = writeln!(text, "    s{saga} {arrow}|\"{}\"| t{topic}", of_mermaid(&joined(steps)));
        }
        text
    }

    /// The topology in the language DOT of [Graphviz](https://graphviz.org).
    ///
    /// An edge from a saga has the names of the steps that launch the messages. It is dotted if the launch is declared only. A
    /// retired saga has a dashed frame.
    ///
    /// ```
    /// # let topology = scoop_operate::Topology::default();
    /// assert!(topology.to_dot().starts_with("digraph topology {\n"));
    /// ```
    pub fn to_dot(&self) -> String {
        let graph = Graph::new(self);
        let mut text = "digraph topology {\n    rankdir=LR;\n".to_owned();
        for (topic, number) in &graph.topics {
            let _ = writeln!(text, "    t{number} [label=\"{}\"];", of_dot(topic));
        }
        for (number, (service, sagas)) in graph.services.iter().enumerate() {
            let service = service.map(of_dot);
            let begin = |service| format!("    subgraph cluster_{number} {{\n    label=\"{service}\";\n");
            text.extend(service.iter().map(begin));
            for saga in sagas {
                let style = if self.is_retired(saga) { ", style=dashed" } else { "" };
                let (node, label) = (graph.sagas[saga], of_dot(saga));
                let _ = writeln!(text, "    s{node} [label=\"{label}\", shape=box{style}];");
            }
            text.extend(service.map(|_| "    }\n"));
        }
        for (topic, saga) in &graph.deliveries {
            let _ = writeln!(text, "    t{topic} -> s{saga};");
        }
        for ((saga, topic), (steps, is_seen)) in &graph.launches {
            let style = if *is_seen { "" } else { ", style=dotted" };
            let _ = writeln!(text, "    s{saga} -> t{topic} [label=\"{}\"{style}];", of_dot(&joined(steps)));
        }
        text + "}\n"
    }
}

fn joined(steps: &BTreeSet<&str>) -> String {
    steps.iter().copied().collect::<Vec<_>>().join(", ")
}

/// The text in quotes of Mermaid, which writes other characters as their numbers.
fn of_mermaid(text: &str) -> String {
    let is_unescaped = |it: char| it.is_alphanumeric() || " .,-_:/@+".contains(it);
    text.chars()
        .map(|it| if is_unescaped(it) { it.to_string() } else { format!("#{};", u32::from(it)) })
        .collect()
}

/// The text in quotes of DOT. Control characters have no place in it.
fn of_dot(text: &str) -> String {
    let printable = text.chars().map(|it| if it.is_control() { ' ' } else { it });
    printable.collect::<String>().replace('\\', "\\\\").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{handler, launch};
    use super::*;

    fn topology() -> Topology {
        let handlers = ["checkout on placed in shop", "payments on pay in shop", "retired former on pay"];
        let launches = [
            "charge of checkout to pay",
            "again of checkout to pay",
            "declared send of payments to a \"b\\\n",
        ];
        let (handlers, launches) = (handlers.map(handler).to_vec(), launches.map(launch).to_vec());
        Topology { handlers, launches, ..Topology::default() }
    }

    #[test]
    fn flowchart_has_all_edges() {
        assert_eq!(
            topology().to_mermaid(),
            "flowchart LR
    classDef retired stroke-dasharray: 4
    t0([\"a #34;b#92;#10;\"])
    t1([\"pay\"])
    t2([\"placed\"])
    s1[\"former\"]:::retired
    subgraph v1[\"shop\"]
    s0[\"checkout\"]
    s2[\"payments\"]
    end
    t1 --> s1
    t1 --> s2
    t2 --> s0
    s0 -->|\"again, charge\"| t1
    s2 -.->|\"send\"| t0
"
        );
    }

    #[test]
    fn graph_of_dot_has_all_edges() {
        assert_eq!(
            topology().to_dot(),
            "digraph topology {
    rankdir=LR;
    t0 [label=\"a \\\"b\\\\ \"];
    t1 [label=\"pay\"];
    t2 [label=\"placed\"];
    s1 [label=\"former\", shape=box, style=dashed];
    subgraph cluster_1 {
    label=\"shop\";
    s0 [label=\"checkout\", shape=box];
    s2 [label=\"payments\", shape=box];
    }
    t1 -> s1;
    t1 -> s2;
    t2 -> s0;
    s0 -> t1 [label=\"again, charge\"];
    s2 -> t0 [label=\"send\", style=dotted];
}
"
        );
    }
}
