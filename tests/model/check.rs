//! Visits all states of a model breadth first, so that a violation is reported with a shortest trace.
//!
//! Own code: the existing crate for this checks liveness only along paths that do not meet or return, and
//! brings twenty packages, a web server among them. Here progress is checked in the whole graph: from each
//! reachable state, rest can be reached without any further fault. So the model always comes to rest if no move
//! that stays possible is put off for ever.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Violated by a state from which rest cannot be reached.
pub(crate) const COMES_TO_REST: &str = "rest can be reached from every state (I7)";

/// More states than any model has.
const STATES_MAX: usize = 1_000_000;

/// A part of the protocol with its environment.
pub(crate) trait Model {
    /// Everything that the participants know.
    type State: Clone + Eq + Hash + Debug;
    /// A transition to another state.
    type Move: Copy + Eq + Debug;

    /// The initial state.
    fn start(&self) -> Self::State;
    /// Each possible move with the state it leads to.
    fn moves(&self, state: &Self::State) -> Vec<(Self::Move, Self::State)>;
    /// Whether progress must not rely on this move.
    fn is_fault(&self, a_move: Self::Move) -> bool;
    /// The property that the state violates, if any.
    fn wrong(&self, state: &Self::State) -> Option<&'static str>;
    /// Whether all work is done.
    fn is_at_rest(&self, state: &Self::State) -> bool;
}

/// Size of the visited graph.
#[derive(Debug)]
pub(crate) struct Visited {
    pub(crate) states: usize,
    pub(crate) moves: usize,
    pub(crate) at_rest: usize,
    pub(crate) depth: usize,
    pub(crate) took: Duration,
}

/// A violated property, and a shortest trace to it.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) property: &'static str,
    pub(crate) trace: String,
}

/// All states in the order of their discovery.
struct Graph<M: Model> {
    states: Vec<M::State>,
    /// How each state was first reached: from which state, by which move.
    came: Vec<Option<(usize, M::Move)>>,
    depths: Vec<usize>,
    /// Predecessors of each state, by moves that are no faults.
    before: Vec<Vec<u32>>,
    moves: usize,
}

/// Visits every state, or stops at the first violation.
pub(crate) fn check<M: Model>(model: &M) -> Result<Visited, Wrong> {
    let begun = Instant::now();
    let graph = explore(model)?;
    let rest: Vec<_> = (0..graph.states.len()).filter(|at| model.is_at_rest(&graph.states[*at])).collect();
    let at_rest = rest.len();
    let mut leads_to_rest = vec![false; graph.states.len()];
    let mut open = rest;
    while let Some(at) = open.pop() {
        if !std::mem::replace(&mut leads_to_rest[at], true) {
            open.extend(graph.before[at].iter().map(|before| *before as usize));
        }
    }
    if let Some(lost) = leads_to_rest.iter().position(|leads| !leads) {
        return Err(graph.wrong(lost, COMES_TO_REST));
    }
    let depth = graph.depths.iter().max().copied().unwrap_or(0);
    let took = begun.elapsed();
    Ok(Visited { states: graph.states.len(), moves: graph.moves, at_rest, depth, took })
}

fn explore<M: Model>(model: &M) -> Result<Graph<M>, Wrong> {
    let start = model.start();
    let mut known = HashMap::from([(start.clone(), 0)]);
    let mut graph =
        Graph { states: vec![start], came: vec![None], depths: vec![0], before: vec![vec![]], moves: 0 };
    let mut at = 0;
    while at < graph.states.len() {
        if let Some(property) = model.wrong(&graph.states[at]) {
            return Err(graph.wrong(at, property));
        }
        for (a_move, next) in model.moves(&graph.states[at]) {
            graph.moves += 1;
            let to = match known.entry(next) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let to = graph.states.len();
                    graph.states.push(new.key().clone());
                    graph.came.push(Some((at, a_move)));
                    graph.depths.push(graph.depths[at] + 1);
                    graph.before.push(vec![]);
                    *new.insert(to)
                }
            };
            if !model.is_fault(a_move) {
                graph.before[to].push(u32::try_from(at).expect("a model is small"));
            }
        }
        at += 1;
        assert!(graph.states.len() < STATES_MAX, "it has no end: {}", graph.wrong(at, "").trace);
    }
    Ok(graph)
}

impl<M: Model> Graph<M> {
    fn wrong(&self, at: usize, property: &'static str) -> Wrong {
        let (mut way, mut here) = (vec![], at);
        while let Some((from, a_move)) = self.came[here] {
            way.push(format!("{a_move:?}"));
            here = from;
        }
        way.reverse();
        Wrong { property, trace: format!("{}\n=> {:?}", way.join("\n"), self.states[at]) }
    }
}

/// Asserts that no state of the model violates a property.
pub(crate) fn holds<M: Model>(name: &str, model: &M) {
    match check(model) {
        Ok(visited) => {
            let Visited { states, moves, at_rest, depth, took } = visited;
            println!(
                "{name}: {states} states, {at_rest} of them at rest, {moves} moves, {depth} deep, {took:.1?}"
            );
            assert!(at_rest > 0 && moves > 0, "{name} makes no progress");
        }
        Err(wrong) => panic!("{name} violates: {}\n{}", wrong.property, wrong.trace),
    }
}

/// Asserts that the model, which contains a fault, violates this property before any other.
pub(crate) fn violates<M: Model>(name: &str, model: &M, property: &str) {
    match check(model) {
        Ok(visited) => panic!("{name} is not detected: {visited:?}"),
        Err(wrong) => {
            println!("{name} is detected in {} moves: {property}", wrong.trace.lines().count() - 1);
            assert_eq!(wrong.property, property, "{name} violates something else:\n{}", wrong.trace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts up to a limit, perhaps past it; and may get lost in a circle.
    struct Counter {
        limit: u8,
        circle: bool,
    }

    impl Model for Counter {
        type State = u8;
        type Move = &'static str;

        fn start(&self) -> u8 {
            0
        }

        fn moves(&self, state: &u8) -> Vec<(&'static str, u8)> {
            match *state {
                100 => vec![("on", 101)],
                101 => vec![("on", 100), ("fault", 0)],
                state if state == self.limit => vec![],
                2 if self.circle => vec![("up", 3), ("astray", 100)],
                state => vec![("up", state + 1)],
            }
        }

        fn is_fault(&self, a_move: &'static str) -> bool {
            a_move == "fault"
        }

        fn wrong(&self, state: &u8) -> Option<&'static str> {
            (*state == 7).then_some("seven")
        }

        fn is_at_rest(&self, state: &u8) -> bool {
            *state == self.limit
        }
    }

    #[test]
    fn each_state_of_a_correct_model_is_visited_once() {
        let visited = check(&Counter { limit: 5, circle: false }).unwrap();
        assert_eq!((visited.states, visited.moves, visited.depth, visited.at_rest), (6, 5, 5, 1));
    }

    #[test]
    fn cycle_that_only_a_fault_leaves_is_no_progress() {
        let wrong = check(&Counter { limit: 5, circle: true }).unwrap_err();
        assert_eq!((wrong.property, wrong.trace.lines().count()), (COMES_TO_REST, 4));
    }

    #[test]
    fn violation_is_reported_with_a_shortest_trace() {
        let wrong = check(&Counter { limit: 9, circle: true }).unwrap_err();
        assert_eq!((wrong.property, wrong.trace.lines().count()), ("seven", 8));
    }
}
