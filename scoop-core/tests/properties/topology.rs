//! Random scripts that end: sagas emit only to topics below their own, and the last of several outcomes, which applies
//! to all further calls, goes forward.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

/// The topics by level. The last one has no handler.
const TOPICS: [&[&str]; 4] = [&["root"], &["left", "right"], &["low"], &["none"]];

pub(super) fn script() -> impl Strategy<Value = String> {
    let root = sagas_on("root", 0, 1..=2);
    let left = sagas_on("left", 1, 0..=2);
    let right = sagas_on("right", 1, 0..=1);
    let low = sagas_on("low", 2, 0..=2);
    (root, left, right, low)
        .prop_map(|(root, left, right, low)| format!("{root}{left}{right}{low}launch root with P=0\n"))
}

fn sagas_on(
    topic: &'static str,
    level: usize,
    handlers: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = String> {
    let steps = (1usize..=3).prop_flat_map(move |count| {
        let steps: Vec<_> = (0..count).map(|index| step(level, index)).collect();
        steps
    });
    vec(steps, handlers).prop_map(move |sagas| {
        let sagas = sagas.iter().enumerate();
        sagas.map(|(index, steps)| format!("saga {topic}-{index} on {topic}\n{}", steps.concat())).collect()
    })
}

fn step(level: usize, index: usize) -> impl Strategy<Value = String> {
    let undo = prop_oneof![
        2 => Just(None),
        3 => Just(Some("nothing".to_owned())),
        1 => outcomes(level, undo_end, undo_end).prop_map(Some),
    ];
    let forward = move || onward_end(index);
    let invoke = outcomes_with_output(level, any_end, forward);
    let handler = option::weighted(0.4, handler_outcomes(level));
    (invoke, undo, handler).prop_map(move |(invoke, undo, handler)| {
        let undo = undo.map_or(String::new(), |undo| format!("    undo: {undo}\n"));
        let handler = handler.map_or(String::new(), |handler| format!("    on child failure: {handler}\n"));
        format!("  step s{index}: {invoke}\n{undo}{handler}")
    })
}

/// Up to one outcome with any end, then one with a final end.
fn outcomes<E, L>(level: usize, end: fn() -> E, last: fn() -> L) -> BoxedStrategy<String>
where
    E: Strategy<Value = String> + 'static,
    L: Strategy<Value = String> + 'static,
{
    let before = vec((emissions(level), end()), 0..=1);
    (before, (emissions(level), last()))
        .prop_map(|(before, last)| join(before.into_iter().chain([last])))
        .boxed()
}

fn outcomes_with_output<E, L>(level: usize, end: fn() -> E, last: impl Fn() -> L) -> BoxedStrategy<String>
where
    E: Strategy<Value = String> + 'static,
    L: Strategy<Value = String> + 'static,
{
    let before = vec((emissions(level), output(), end()), 0..=2);
    (before, (emissions(level), output(), last()))
        .prop_map(|(before, last)| {
            let all = before.into_iter().chain([last]);
            join(all.map(|(emissions, output, end)| (emissions + &output, end)))
        })
        .boxed()
}

/// The last outcome emits nothing: a message emitted in each call could fail forever.
fn handler_outcomes(level: usize) -> impl Strategy<Value = String> {
    let before = vec((emissions(level), prop_oneof![any_end(), handler_end()]), 0..=2);
    (before, handler_end()).prop_map(|(before, last)| join(before.into_iter().chain([(String::new(), last)])))
}

fn join(outcomes: impl Iterator<Item = (String, String)>) -> String {
    let outcomes: Vec<_> = outcomes.map(|(first, end)| first + &end).collect();
    outcomes.join(", ")
}

/// The context elements that an outcome sets, and its emissions.
fn emissions(level: usize) -> impl Strategy<Value = String> {
    let element = option::weighted(0.3, (proptest::sample::select(vec!["P", "Q"]), 0..100));
    let element = element
        .prop_map(|element| element.map_or(String::new(), |(key, value)| format!("set {key}={value} and ")));
    let topics: Vec<_> = TOPICS[level + 1..].concat();
    let topic = proptest::sample::select(topics);
    let detached = proptest::bool::weighted(0.1);
    let emission = (topic, detached).prop_map(|(topic, detached)| {
        let detached = if detached { "detached " } else { "" };
        format!("emit {detached}{topic} and ")
    });
    (element, vec(emission, 0..=2)).prop_map(|(element, emissions)| element + &emissions.concat())
}

fn output() -> impl Strategy<Value = String> {
    option::weighted(0.3, 0..100)
        .prop_map(|value| value.map_or(String::new(), |value| format!("return {value} and ")))
}

fn any_end() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("continue".to_owned()),
        2 => Just("repeat".to_owned()),
        1 => (0..4).prop_map(|step| format!("goto {step}")),
        1 => Just("fail \"oops\"".to_owned()),
    ]
}

/// An end of a step that is safe in any number of calls: it does not jump back.
fn onward_end(index: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        5 => Just("continue".to_owned()),
        2 => Just(format!("fail \"step {index}\"")),
        1 => (index + 1..=index + 2).prop_map(|step| format!("goto {step}")),
    ]
}

fn undo_end() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just("nothing".to_owned()),
        1 => Just("fail \"not undone\"".to_owned()),
    ]
}

fn handler_end() -> impl Strategy<Value = String> {
    prop_oneof![
        2 => Just("ignore".to_owned()),
        2 => Just("rethrow".to_owned()),
        1 => Just("continue".to_owned()),
        1 => Just("fail \"not handled\"".to_owned()),
    ]
}
