//! Names: generated ones, which follow from Rust's, and the limits of stored ones.

use quote::format_ident;
use syn::ext::IdentExt;
use syn::{Ident, LitStr};

use crate::errors::Errors;
use crate::settings::Settings;

/// The kind of a stored name, which limits its length. The limits are those of `scoop-core`, which checks them
/// again when the program starts.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// At most 180 characters: rows hold it together with the name of a worker.
    Saga,
    /// At most 180 characters: rolling back adds a prefix and a suffix.
    Step,
    /// At most 63 bytes: names of notification channels in PostgreSQL are not longer.
    Topic,
    /// At most 255 characters: it travels with every message, to programs with limits of their own.
    ContextKey,
    /// At most 180 characters, like other names.
    Signal,
    /// At most 180 characters, like other names.
    Entity,
    /// At most 180 characters, like other names. Names with our prefix have a meaning already.
    Code,
}

impl Kind {
    /// The reason why the name cannot be stored; `None` if it can.
    pub(crate) fn refuses(self, name: &str) -> Option<String> {
        let (what, max, unit, length) = match self {
            Kind::Saga => ("saga name", 180, "characters", name.chars().count()),
            Kind::Step => ("step name", 180, "characters", name.chars().count()),
            Kind::Topic => ("topic", 63, "bytes", name.len()),
            Kind::ContextKey => ("key", 255, "characters", name.chars().count()),
            Kind::Signal => ("name of a signal", 180, "characters", name.chars().count()),
            Kind::Entity => ("name of an entity", 180, "characters", name.chars().count()),
            Kind::Code => ("failure code", 180, "characters", name.chars().count()),
        };
        if name.contains('\0') {
            return Some(format!("a {what} cannot contain a NUL character: PostgreSQL does not store it"));
        }
        if matches!(self, Kind::Code) && name.starts_with("scoop:") {
            return Some(format!("a {what} that begins with `scoop:` is scoop's own; write another"));
        }
        if matches!(self, Kind::Topic) && name.starts_with("scoop.failed") {
            return Some(format!("a {what} that begins with `scoop.failed` is scoop's own; write another"));
        }
        (length == 0 || length > max)
            .then(|| format!("a {what} has 1 to {max} {unit}, this one has {length}"))
    }

    /// The setting for a name of one's own.
    fn written(self) -> &'static str {
        match self {
            Kind::Saga | Kind::Step | Kind::Entity => "name = \"..\"",
            Kind::Topic => "#[message(topic = \"..\")]",
            Kind::ContextKey => "#[context(key = \"..\")]",
            Kind::Signal => "#[signal(name = \"..\")]",
            Kind::Code => "#[failure(code = \"..\")]",
        }
    }
}

/// The name in the setting, or else the one that follows from `ident`.
pub(crate) fn stored(
    kind: Kind,
    written: Option<&LitStr>,
    ident: &Ident,
    default: impl FnOnce(&str) -> String,
    errors: &mut Errors,
) -> String {
    let name = written.map_or_else(|| default(&ident.unraw().to_string()), LitStr::value);
    if let Some(why) = kind.refuses(&name) {
        match written {
            Some(literal) => errors.at(literal, why),
            None => errors.at(ident, format!("{why}; write one: `{}`", kind.written())),
        }
    }
    name
}

/// The former names of something stored as `name`, from the setting `was`.
pub(crate) fn former(kind: Kind, settings: &Settings, name: &str, errors: &mut Errors) -> Vec<LitStr> {
    let mut former: Vec<LitStr> = vec![];
    for literal in settings.texts("was", errors) {
        let value = literal.value();
        if let Some(why) = kind.refuses(&value) {
            errors.at(&literal, why);
        } else if value == name || former.iter().any(|it| it.value() == value) {
            errors.at(&literal, format!("`{value}` is one of its names already; remove this"));
        } else {
            former.push(literal);
        }
    }
    former
}

/// The suffix of the stored name of a wait for a step's time. Part of the protocol, like the next.
pub(crate) const WAITING: &str = " (waiting for scheduled time)";

/// The suffix of the stored name of a wait for a signal.
pub(crate) const AWAITING: &str = " (waiting for signal)";

pub(crate) const FINALLY: &str = " (finally)";

/// `OrderFlow` as `order-flow`, `HTTPCall` as `http-call`.
pub(crate) fn kebab_case(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut kebab = String::new();
    for (index, &char) in chars.iter().enumerate() {
        let before = index.checked_sub(1).map(|before| chars[before]);
        let after = chars.get(index + 1);
        let starts_word = char.is_uppercase()
            && before.is_some_and(|before| {
                before != '_' && (!before.is_uppercase() || after.is_some_and(|c| c.is_lowercase()))
            });
        if starts_word {
            kebab.push('-');
        }
        match char {
            '_' => kebab.push('-'),
            _ => kebab.extend(char.to_lowercase()),
        }
    }
    kebab
}

/// The variant for a step function: `charge_card` as `ChargeCard`.
pub(crate) fn variant(function: &Ident) -> Ident {
    let name = function.unraw().to_string();
    let words = name.split('_').map(|word| {
        let mut chars = word.chars();
        let first = chars.next().into_iter().flat_map(char::to_uppercase);
        first.chain(chars).collect::<String>()
    });
    let name: String = words.collect();
    let name = match syn::parse_str::<Ident>(&name) {
        Ok(_) => name,
        Err(_) => format!("Step{name}"), // `_1`, `self_`: no identifiers when in camel case
    };
    format_ident!("{name}", span = function.span())
}

/// The candidate that `name` was probably meant to be.
pub(crate) fn closest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let distance = |candidate: &str| strsim::damerau_levenshtein(name, candidate);
    let near = |candidate: &&str| distance(candidate) <= 1.max(name.len() / 3);
    let candidates = candidates.into_iter().filter(near);
    candidates.min_by_key(|candidate| distance(candidate))
}

/// `; did you mean ..?`, or nothing.
pub(crate) fn did_you_mean<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    closest(name, candidates).map_or(String::new(), |it| format!("; did you mean `{it}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_names_become_kebab_case() {
        let cases = [
            ("Checkout", "checkout"),
            ("OrderFlow", "order-flow"),
            ("HTTPCall", "http-call"),
            ("CallHTTP", "call-http"),
            ("V2Order", "v2-order"),
            ("Order2Go", "order2-go"),
            ("Snake_Case", "snake-case"),
            ("A", "a"),
            ("ÄrgerLos", "ärger-los"),
        ];
        for (name, kebab) in cases {
            assert_eq!(kebab_case(name), kebab);
        }
    }

    #[test]
    fn function_names_become_variants() {
        let cases = [
            ("reserve", "Reserve"),
            ("charge_card", "ChargeCard"),
            ("_private__twice", "PrivateTwice"),
            ("step_2", "Step2"),
            ("_1", "Step1"),
            ("self_", "StepSelf"),
            ("r#try", "Try"),
        ];
        for (function, expected) in cases {
            assert_eq!(variant(&syn::parse_str(function).unwrap()), expected);
        }
    }

    #[test]
    fn only_storable_names_pass() {
        let refused = |kind: Kind, name: &str| kind.refuses(name).is_some();
        assert!(!refused(Kind::Topic, &"t".repeat(63)));
        assert!(refused(Kind::Topic, &"ä".repeat(32)));
        assert!(!refused(Kind::Step, &"ä".repeat(180)));
        assert!(refused(Kind::Saga, &"s".repeat(181)));
        assert!(refused(Kind::Saga, ""));
        assert!(refused(Kind::Step, "a\0b"));
        assert!(!refused(Kind::ContextKey, &"ä".repeat(255)));
        assert!(refused(Kind::ContextKey, &"k".repeat(256)));
    }

    #[test]
    fn only_similar_names_are_suggested() {
        assert_eq!(closest("relese", ["refund", "release"]), Some("release"));
        assert_eq!(closest("nmae", ["timeout", "name"]), Some("name"));
        assert_eq!(closest("retry", ["rollback", "name"]), None);
    }
}
