//! Names that may be mistyped: of sagas and topics.

use std::collections::BTreeSet;

use scoop_operate::{OperateExt as _, RegisteredHandler};
use scoop_runtime::{PauseTarget, Scoop};

use crate::fault::Fault;

/// The maximum number of names in an error.
const NAMED_MAX: usize = 5;

/// Checks that a handler was ever registered that the target covers.
///
/// # Errors
///
/// [`Fault::NotFound`] otherwise, with similar names.
pub(super) async fn check(scoop: &Scoop, target: &PauseTarget) -> Result<(), Fault> {
    if *target == PauseTarget::Everything || scoop.operate().pauses().is_registered(target).await? {
        return Ok(());
    }
    let handlers = scoop.operate().handlers().list().await?;
    let hint = match target {
        PauseTarget::Topic(name) => of_topics(name, &handlers),
        PauseTarget::Handler(name) => instead(name, handlers.iter().map(|it| &*it.handler)),
        _ => String::new(),
    };
    Err(Fault::NotFound(format!("no handler was ever registered for {target}{hint}")))
}

/// The topics to name in an error about one without handlers.
pub(super) fn of_topics(topic: &str, handlers: &[RegisteredHandler]) -> String {
    instead(topic, handlers.iter().map(|it| &*it.topic))
}

/// `; did you mean ..?` if a name is similar, or else some of the names.
pub(super) fn instead<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let names: BTreeSet<_> = names.collect();
    let distance = |other: &&&str| strsim::damerau_levenshtein(name, other);
    let nearest = names.iter().min_by_key(distance);
    if let Some(near) = nearest.filter(|near| distance(near) <= 2.max(name.len() / 4)) {
        return format!("; did you mean `{near}`?");
    }
    let quoted: Vec<_> = names.iter().take(NAMED_MAX).map(|name| format!("`{name}`")).collect();
    match names.len() - quoted.len() {
        0 if quoted.is_empty() => "; none is registered".to_owned(),
        0 => format!("; there are {}", quoted.join(", ")),
        more => format!("; there are {} and {more} more", quoted.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_name_or_else_some_names_are_given() {
        let instead = |name, names: &[&str]| instead(name, names.iter().copied());
        assert_eq!(instead("courir", &["orders", "courier"]), "; did you mean `courier`?");
        assert_eq!(instead("mail", &["orders", "courier"]), "; there are `courier`, `orders`");
        let six = ["a1", "b1", "c1", "d1", "e1", "f1"];
        assert_eq!(instead("payments", &six), "; there are `a1`, `b1`, `c1`, `d1`, `e1` and 1 more");
        assert_eq!(instead("mail", &[]), "; none is registered");
    }
}
