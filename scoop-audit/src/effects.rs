//! I5, I6, I10: the effects of user code match the log.

use std::collections::BTreeMap;

use scoop_core::{Definition, EventKind, StepDefinition, StepKind};

use crate::history::{Findings, Hierarchy, Run, hierarchies, is_same_step, steps};
use crate::{Effect, EffectKind, EffectPlace, Invariant, Log, Quiescence};

/// An execution: of a step in an iteration, or of its compensation.
type Key = (EffectKind, String, u32);

pub(crate) fn check(log: &Log, definitions: &[Definition], effects: &[Effect], findings: &mut Findings) {
    let mut by_run: BTreeMap<_, Vec<&Effect>> = BTreeMap::new();
    for effect in effects {
        by_run.entry(effect.run).or_default().push(effect);
    }
    for hierarchy in hierarchies(log, definitions, Quiescence::No) {
        for run in &hierarchy.runs {
            let noted = by_run.remove(&run.id()).unwrap_or_default();
            in_transactions(&hierarchy, run, effects, &noted, findings);
            outside(&hierarchy, run, effects, &noted, findings);
        }
    }
    for (run, effects) in by_run {
        let inside = effects.iter().find(|effect| effect.place == EffectPlace::Transaction);
        if let Some(effect) = inside {
            let what = format!("`{}` has an effect, but its run never began", effect.step);
            findings.push(super::Violation { invariant: Invariant::Atomic, hierarchy: run, what });
        }
    }
}

/// The number of recorded outcomes of each execution, and the minimum number of them that ran code. The version that
/// ran a compensation is not recorded, and versions may differ in whether they have it.
fn on_record(hierarchy: &Hierarchy<'_>, run: &Run<'_>) -> BTreeMap<Key, (usize, usize)> {
    let versions = hierarchy.versions(run);
    let (mut executed, mut is_first): (Vec<(String, u32)>, _) = (vec![], true);
    for window in run.forward() {
        if window.closed.event.handler_iteration.is_some() {
            continue;
        }
        let name = window.closed.step().to_owned();
        let before = executed.last().filter(|(last, _)| !is_first && is_same_step(&versions, last, &name));
        let iteration = before.map_or(0, |(_, before)| before + 1);
        executed.push((name, iteration));
        is_first = window.closed.event.continues_as_new;
    }
    let undone = run.rows.iter().filter(|row| {
        let own = row.kind() == EventKind::Suspended && row.event.handler_iteration.is_none();
        own && row.step().starts_with("Rollback of ") && row.step().ends_with(']')
    });
    let undone = executed.iter().rev().take(undone.count());
    let mut counts = BTreeMap::new();
    // Operators retry or skip parts: then rows and executions do not match.
    let undone = undone.filter(|_| !hierarchy.repaired);
    for (part, (name, iteration)) in executed
        .iter()
        .map(|it| (EffectKind::Step, it))
        .chain(undone.map(|it| (EffectKind::Compensation, it)))
    {
        let code = |step: &&StepDefinition| step.kind == StepKind::Code;
        let has = |step: &StepDefinition| part == EffectKind::Step || step.compensated;
        if steps(&versions, name).filter(code).any(has) {
            let count: &mut (usize, usize) = counts.entry((part, name.clone(), *iteration)).or_default();
            count.0 += 1;
            count.1 += usize::from(steps(&versions, name).filter(code).all(has));
        }
    }
    counts
}

fn noted(effects: &[&Effect], place: EffectPlace) -> BTreeMap<Key, usize> {
    let mut counts = BTreeMap::new();
    for effect in effects.iter().filter(|effect| effect.place == place) {
        *counts.entry((effect.part, effect.step.clone(), effect.iteration)).or_insert(0) += 1;
    }
    counts
}

/// Requires exactly as many effects as outcomes.
fn in_transactions(
    hierarchy: &Hierarchy<'_>,
    run: &Run<'_>,
    all: &[Effect],
    effects: &[&Effect],
    findings: &mut Findings,
) {
    if !all.iter().any(|effect| effect.place == EffectPlace::Transaction) {
        return;
    }
    let (recorded, noted) = (on_record(hierarchy, run), noted(effects, EffectPlace::Transaction));
    let keys: std::collections::BTreeSet<_> = recorded.keys().chain(noted.keys()).collect();
    for key in keys {
        let (recorded, least) = recorded.get(key).copied().unwrap_or_default();
        let noted = noted.get(key).copied().unwrap_or(0);
        if (least..=recorded).contains(&noted) {
            continue;
        }
        let (part, name, iteration) = key;
        if hierarchy.repaired && *part == EffectKind::Compensation {
            continue;
        }
        let invariant = match part {
            EffectKind::Compensation if noted > recorded => Invariant::CompensatedOnce,
            EffectKind::Step if noted > recorded && recorded > 0 => Invariant::ExecutedOnce,
            _ => Invariant::Atomic,
        };
        let what = format!(
            "{part:?} `{name}` of `{}` in iteration {iteration} has {noted} effects and {recorded} outcomes",
            run.handler
        );
        hierarchy.find(findings, invariant, what);
    }
}

/// Requires an attempt for every recorded outcome.
fn outside(
    hierarchy: &Hierarchy<'_>,
    run: &Run<'_>,
    all: &[Effect],
    effects: &[&Effect],
    findings: &mut Findings,
) {
    if !all.iter().any(|effect| effect.place == EffectPlace::Outside) {
        return;
    }
    let noted = noted(effects, EffectPlace::Outside);
    for (key, (_, least)) in on_record(hierarchy, run) {
        if noted.get(&key).copied().unwrap_or(0) < least {
            let (part, name, iteration) = key;
            let what = format!("{part:?} `{name}` of `{}` in iteration {iteration} never ran", run.handler);
            hierarchy.find(findings, Invariant::Atomic, what);
        }
    }
}
