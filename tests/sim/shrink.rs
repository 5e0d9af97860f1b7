//! Makes a failing scenario smaller, as long as it fails in the same way.
//!
//! It treats a scenario as plain JSON: it leaves out elements of lists, halves numbers and resets flags, the
//! largest parts first.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::scenario::Scenario;

const TIME_MAX: Duration = Duration::from_secs(20);

/// The smallest scenario found for which `fails` still holds.
pub(crate) fn shrink(scenario: &Scenario, fails: impl Fn(&Scenario) -> bool) -> Scenario {
    let until = Instant::now() + TIME_MAX;
    let mut smallest = scenario.clone();
    let Ok(mut json) = serde_json::to_value(scenario) else {
        return smallest;
    };
    let mut changed = true;
    while std::mem::take(&mut changed) {
        let mut paths = vec![];
        collect(&json, String::new(), &mut paths);
        for path in paths {
            for smaller in simpler(&json, &path) {
                if Instant::now() > until {
                    return smallest;
                }
                let read = serde_json::from_value::<Scenario>(smaller.clone()).ok();
                if let Some(candidate) = read.filter(|candidate| fails(candidate)) {
                    (json, smallest, changed) = (smaller, candidate, true);
                    break;
                }
            }
        }
    }
    smallest
}

/// The places of all values, outer ones first.
fn collect(value: &Value, path: String, paths: &mut Vec<String>) {
    if path != "/seed" && !path.is_empty() {
        paths.push(path.clone());
    }
    match value {
        Value::Array(values) => {
            for (at, value) in values.iter().enumerate().rev() {
                collect(value, format!("{path}/{at}"), paths);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                collect(value, format!("{path}/{name}"), paths);
            }
        }
        _ => {}
    }
}

/// Simpler variants of the value, with less at this place. The variants that leave out more come first.
fn simpler(value: &Value, path: &str) -> Vec<Value> {
    let Some(here) = value.pointer(path) else {
        return vec![];
    };
    let replaced = |with: Value| {
        let mut value = value.clone();
        if let Some(here) = value.pointer_mut(path) {
            *here = with;
        }
        value
    };
    let mut simpler: Vec<_> = removed(value, path).into_iter().collect();
    match here {
        Value::Array(values) if !values.is_empty() => simpler.push(replaced(Value::Array(vec![]))),
        Value::Number(number) if number.as_u64().is_some_and(|number| number > 0) => {
            let half = number.as_u64().unwrap_or(0) / 2;
            simpler.extend([replaced(0.into()), replaced(half.into())]);
            simpler.dedup();
        }
        Value::Bool(true) => simpler.push(replaced(false.into())),
        Value::String(end) if end != "Well" => simpler.push(replaced("Well".into())),
        Value::Object(fields) if fields.len() == 1 => simpler.push(replaced("Well".into())),
        _ => {}
    }
    simpler
}

/// The same value without the element at this place, if it is one of a list.
fn removed(value: &Value, path: &str) -> Option<Value> {
    let (list, at) = path.rsplit_once('/')?;
    let at: usize = at.parse().ok()?;
    let mut value = value.clone();
    let Value::Array(values) = value.pointer_mut(list)? else {
        return None;
    };
    if at >= values.len() {
        return None;
    }
    values.remove(at);
    Some(value)
}
