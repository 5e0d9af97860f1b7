//! The topology as a graph: topics and sagas in columns, as SVG. Messages go from left to right.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The maximum number of nodes. A larger graph cannot be read.
pub(super) const NODES_MAX: usize = 150;

/// Sizes, in pixels.
const NODE_WIDTH: usize = 180;
const NODE_HEIGHT: usize = 40;
const COLUMN: usize = 250;
const ROW: usize = 56;
const MARGIN: usize = 8;

/// The number of characters of a name that a node has room for.
const NAME_CHARS_MAX: usize = 24;

/// A node. Sagas and topics may have the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Node {
    Topic(String),
    Saga(String),
}

/// What is said about a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Mark {
    pub(super) href: String,
    /// The second line.
    pub(super) note: String,
    /// The class of its frame.
    pub(super) tone: &'static str,
}

/// Nodes, and the edges between them.
#[derive(Default)]
pub(super) struct Graph {
    nodes: BTreeMap<Node, Mark>,
    edges: BTreeSet<(Node, Node)>,
}

/// A graph with a place for each node.
pub(super) struct Drawing {
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) nodes: Vec<DrawnNode>,
    /// The paths of the edges.
    pub(super) edges: Vec<String>,
}

pub(super) struct DrawnNode {
    pub(super) x: usize,
    pub(super) y: usize,
    pub(super) width: usize,
    pub(super) height: usize,
    pub(super) kind: &'static str,
    pub(super) name: String,
    pub(super) full_name: String,
    pub(super) mark: Mark,
}

impl Graph {
    pub(super) fn add(&mut self, node: Node, mark: Mark) {
        self.nodes.insert(node, mark);
    }

    /// Adds an edge between nodes of the graph.
    pub(super) fn connect(&mut self, from: Node, to: Node) {
        if self.nodes.contains_key(&from) && self.nodes.contains_key(&to) {
            self.edges.insert((from, to));
        }
    }

    /// Whether it has too many nodes to be drawn.
    pub(super) fn is_too_large(&self) -> bool {
        self.nodes.len() > NODES_MAX
    }

    /// The drawing; `None` if there is nothing to draw, or too much.
    pub(super) fn draw(&self) -> Option<Drawing> {
        if self.nodes.is_empty() || self.is_too_large() {
            return None;
        }
        let positions = self.positions();
        let at = |node: &Node| positions.get(node).copied().unwrap_or_default();
        let nodes = self.nodes.iter().map(|(node, mark)| {
            let ((column, row), (kind, name)) = (at(node), node.described());
            let cut = name.chars().count() > NAME_CHARS_MAX;
            let shown: String = name.chars().take(NAME_CHARS_MAX - usize::from(cut)).collect();
            DrawnNode {
                x: MARGIN + column * COLUMN,
                y: MARGIN + row * ROW,
                width: NODE_WIDTH,
                height: NODE_HEIGHT,
                kind,
                name: if cut { shown + "…" } else { shown },
                full_name: format!("{kind} {name}"),
                mark: mark.clone(),
            }
        });
        let edges = self.edges.iter().map(|(from, to)| path(at(from), at(to)));
        let columns = positions.values().map(|(column, _)| column + 1).max().unwrap_or(1);
        let rows = positions.values().map(|(_, row)| row + 1).max().unwrap_or(1);
        Some(Drawing {
            width: 2 * MARGIN + (columns - 1) * COLUMN + NODE_WIDTH + COLUMN - NODE_WIDTH,
            height: 2 * MARGIN + (rows - 1) * ROW + NODE_HEIGHT,
            nodes: nodes.collect(),
            edges: edges.collect(),
        })
    }

    /// The column and the row of each node. The column is the distance from a node without a predecessor; of a cycle without
    /// one, from its first node.
    fn positions(&self) -> BTreeMap<&Node, (usize, usize)> {
        let mut columns: BTreeMap<&Node, usize> = BTreeMap::new();
        let has_predecessor = |node: &Node| self.edges.iter().any(|(from, to)| to == node && from != node);
        let first: Vec<_> = self.nodes.keys().filter(|node| !has_predecessor(node)).collect();
        let mut ahead: VecDeque<_> = first.into_iter().map(|node| (node, 0)).collect();
        let mut others = self.nodes.keys();
        loop {
            while let Some((node, column)) = ahead.pop_front() {
                if columns.contains_key(node) {
                    continue;
                }
                columns.insert(node, column);
                let successors = self.edges.iter().filter(|(from, _)| from == node);
                ahead.extend(successors.map(|(_, to)| (to, column + 1)));
            }
            match others.by_ref().find(|node| !columns.contains_key(node)) {
                Some(node) => ahead.push_back((node, 0)),
                None => break,
            }
        }
        let mut by_column: BTreeMap<usize, Vec<&Node>> = BTreeMap::new();
        for (node, column) in columns {
            by_column.entry(column).or_default().push(node);
        }
        let mut positions: BTreeMap<&Node, (usize, usize)> = BTreeMap::new();
        for (column, mut nodes) in by_column {
            // Near to the predecessors, so that few edges cross.
            nodes.sort_by_key(|node| {
                let rows = self.edges.iter().filter(|(_, to)| to == *node);
                rows.filter_map(|(from, _)| positions.get(from)).map(|(_, row)| *row).min()
            });
            positions.extend(nodes.into_iter().enumerate().map(|(row, node)| (node, (column, row))));
        }
        positions
    }
}

impl Node {
    fn described(&self) -> (&'static str, &str) {
        match self {
            Self::Topic(name) => ("topic", name),
            Self::Saga(name) => ("saga", name),
        }
    }
}

/// The curve from the right of a node to the left of another.
fn path((from_column, from_row): (usize, usize), (to_column, to_row): (usize, usize)) -> String {
    let y = |row: usize| MARGIN + row * ROW + NODE_HEIGHT / 2;
    let (x1, y1) = (MARGIN + from_column * COLUMN + NODE_WIDTH, y(from_row));
    let (x2, y2) = (MARGIN + to_column * COLUMN, y(to_row));
    let bend = (COLUMN - NODE_WIDTH) / 2;
    format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2.saturating_sub(bend))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn topic(name: &str) -> Node {
        Node::Topic(name.into())
    }

    fn saga(name: &str) -> Node {
        Node::Saga(name.into())
    }

    fn graph(edges: &[(Node, Node)]) -> Graph {
        let mut graph = Graph::default();
        for node in edges.iter().flat_map(|(from, to)| [from, to]) {
            graph.add(node.clone(), Mark::default());
        }
        edges.iter().for_each(|(from, to)| graph.connect(from.clone(), to.clone()));
        graph
    }

    #[test]
    fn messages_go_from_left_to_right() {
        let graph = graph(&[
            (topic("orders"), saga("checkout")),
            (saga("checkout"), topic("payments")),
            (topic("payments"), saga("bank")),
            (topic("orders"), saga("report")),
        ]);
        let positions = graph.positions();
        assert_eq!(positions[&topic("orders")], (0, 0));
        assert_eq!((positions[&saga("checkout")], positions[&saga("report")]), ((1, 0), (1, 1)));
        assert_eq!((positions[&topic("payments")].0, positions[&saga("bank")].0), (2, 3));
        let drawing = graph.draw().unwrap();
        assert_eq!((drawing.nodes.len(), drawing.edges.len()), (5, 4));
        let inside =
            |node: &DrawnNode| node.x + node.width <= drawing.width && node.y + node.height <= drawing.height;
        assert!(drawing.nodes.iter().all(inside));
    }

    #[test]
    fn cycle_is_drawn() {
        let cycle = graph(&[(topic("a"), saga("a")), (saga("a"), topic("a"))]);
        assert_eq!(cycle.positions().len(), 2);
        assert_eq!(cycle.draw().unwrap().edges.len(), 2);
    }

    #[test]
    fn graph_that_cannot_be_read_is_not_drawn() {
        assert!(Graph::default().draw().is_none());
        let edges: Vec<_> =
            (0..NODES_MAX).map(|nth| (topic(&nth.to_string()), saga(&nth.to_string()))).collect();
        let graph = graph(&edges);
        assert!(graph.draw().is_none() && graph.is_too_large());
    }
}
