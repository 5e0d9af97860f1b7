//! How often the code of a step runs: the setting `delivery`.

use super::schedule::one_of;
use crate::errors::Errors;
use crate::settings::Settings;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivery {
    AtLeastOnce,
    AtMostOnce,
}

/// A step that runs at most once is not tried again.
pub(super) fn read(settings: &Settings, errors: &mut Errors) -> Delivery {
    let written = settings.text("delivery", errors);
    if let Some(written) = written.as_ref().filter(|it| it.value() == "exactly_once") {
        let message = "no `delivery` makes code run exactly once; what a step writes through `scope.tx()`, and what it \
                       launches, happens exactly once with `\"at_least_once\"`, the default: remove this setting";
        errors.at(written, message);
        return Delivery::AtLeastOnce;
    }
    let known = ["at_least_once", "at_most_once"];
    match written.and_then(|written| errors.record(one_of("delivery", &written, &known))) {
        Some("at_most_once") => {
            if let Some(retry) = settings.key("retry") {
                let message =
                    "a step with `delivery = \"at_most_once\"` is not tried again; remove one of the two";
                errors.at(retry, message);
            }
            Delivery::AtMostOnce
        }
        _ => Delivery::AtLeastOnce,
    }
}
