//! Visits all states of a model, breadth first, so that what it finds wrong is told by a shortest way.
//!
//! Own code, since the crate for this looks for what never happens only along ways that do not meet or
//! return, and brings twenty packages, a web server among them. Here progress is asked of the whole graph:
//! from each state that can be reached, rest can be reached without any further fault. So whatever happens,
//! if nothing that stays possible is put off for ever, it comes to rest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Violated if some state leads nowhere.
pub(crate) const COMES_TO_REST: &str = "whatever happened, it can come to rest (I7)";

/// More than any model has.
const STATES_MAX: usize = 1_000_000;

/// A part of the protocol, with the world around it.
pub(crate) trait Model {
    /// Everything that anybody knows.
    type State: Clone + Eq + Hash + Debug;
    /// What may happen next.
    type Move: Copy + Eq + Debug;

    /// Where it begins.
    fn start(&self) -> Self::State;
    /// Each move that is possible, and where it leads.
    fn moves(&self, state: &Self::State) -> Vec<(Self::Move, Self::State)>;
    /// Whether nobody can rely on this move to happen.
    fn is_fault(&self, a_move: Self::Move) -> bool;
    /// What is wrong here, if anything is.
    fn wrong(&self, state: &Self::State) -> Option<&'static str>;
    /// Whether everything is done.
    fn is_at_rest(&self, state: &Self::State) -> bool;
}

/// What was visited.
#[derive(Debug)]
pub(crate) struct Visited {
    pub(crate) states: usize,
    pub(crate) moves: usize,
    pub(crate) at_rest: usize,
    pub(crate) depth: usize,
    pub(crate) took: Duration,
}

/// What is wrong, and a shortest way there.
#[derive(Debug)]
pub(crate) struct Wrong {
    pub(crate) property: &'static str,
    pub(crate) trace: String,
}

/// All states in the order in which they were found.
struct Graph<M: Model> {
    states: Vec<M::State>,
    /// How each was found first: from which state, by which move.
    came: Vec<Option<(usize, M::Move)>>,
    depths: Vec<usize>,
    /// All moves that are no faults, backwards.
    before: Vec<Vec<u32>>,
    moves: usize,
}

/// Visits everything, or stops at the first that is wrong.
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

/// The model is right in all its states.
pub(crate) fn holds<M: Model>(name: &str, model: &M) {
    match check(model) {
        Ok(visited) => {
            let Visited { states, moves, at_rest, depth, took } = visited;
            println!(
                "{name}: {states} states, {at_rest} of them at rest, {moves} moves, {depth} deep, {took:.1?}"
            );
            assert!(at_rest > 0 && moves > 0, "{name} goes nowhere");
        }
        Err(wrong) => panic!("{name} violates: {}\n{}", wrong.property, wrong.trace),
    }
}

/// The model, which has a fault in it, violates this property, and none before.
pub(crate) fn violates<M: Model>(name: &str, model: &M, property: &str) {
    match check(model) {
        Ok(visited) => panic!("{name} is not found out: {visited:?}"),
        Err(wrong) => {
            println!("{name} is found out in {} moves: {property}", wrong.trace.lines().count() - 1);
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
    fn what_is_right_is_visited_once() {
        let visited = check(&Counter { limit: 5, circle: false }).unwrap();
        assert_eq!((visited.states, visited.moves, visited.depth, visited.at_rest), (6, 5, 5, 1));
    }

    #[test]
    fn a_circle_that_only_a_fault_leaves_is_no_progress() {
        let wrong = check(&Counter { limit: 5, circle: true }).unwrap_err();
        assert_eq!((wrong.property, wrong.trace.lines().count()), (COMES_TO_REST, 4));
    }

    #[test]
    fn what_is_wrong_is_told_by_a_shortest_way() {
        let wrong = check(&Counter { limit: 9, circle: true }).unwrap_err();
        assert_eq!((wrong.property, wrong.trace.lines().count()), ("seven", 8));
    }
}
