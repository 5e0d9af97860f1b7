//! `#[subscribes(Failed(saga = Checkout, outcome = "stuck"))]`: the failures that a handler gets.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Expr, ExprLit, ExprPath, Lit, LitStr, Type};

use super::schedule::{TOPIC_BYTES_MAX, one_of};
use crate::errors::Errors;
use crate::settings::Settings;

/// The topic of all failures, and the prefix of the others.
const TOPIC: &str = "scoop.failed";

const OUTCOMES: [&str; 3] = ["rolled_back", "rollback_failed", "stuck"];

/// A filter: an outcome, a saga, or both.
pub(super) struct Filter {
    /// Its position in [`OUTCOMES`].
    outcome: Option<usize>,
    saga: Option<SagaFilter>,
}

enum SagaFilter {
    Type(ExprPath),
    Name(LitStr),
}

pub(super) fn read(message: &Type, arguments: TokenStream, errors: &mut Errors) -> Option<Filter> {
    let example = "`Failed(saga = YourSaga, outcome = \"stuck\")`";
    if arguments.is_empty() {
        errors.at(message, format!("name what to handle, as in {example}, or remove the parentheses"));
        return None;
    }
    let settings = Settings::read("Failed", &["saga", "outcome"], arguments, errors);
    let outcome = settings.text("outcome", errors);
    let outcome = outcome.and_then(|it| errors.record(one_of("outcome", &it, &OUTCOMES)));
    let outcome = outcome.and_then(|it| OUTCOMES.iter().position(|name| *name == it));
    let takes = "a saga, or the stored name of one: `saga = YourSaga` or `saga = \"..\"`";
    let saga = settings.expression("saga", takes, errors, |value| match value {
        Expr::Path(path) => Some(SagaFilter::Type(path.clone())),
        Expr::Lit(ExprLit { lit: Lit::Str(name), .. }) => Some(SagaFilter::Name(name.clone())),
        _ => None,
    });
    let filter = Filter { outcome, saga };
    if let Some(SagaFilter::Name(name)) = &filter.saga {
        filter.check(name, errors);
    }
    Some(filter)
}

impl Filter {
    pub(super) fn topic(&self, message: &Type) -> TokenStream {
        let topic = match &self.saga {
            Some(SagaFilter::Type(saga)) => {
                let outcome = self.outcome.map_or(0, |outcome| outcome + 1);
                quote!(::scoop::__private::failed_topic::<#saga, #outcome>())
            }
            Some(SagaFilter::Name(name)) => {
                let topic = format!("{}:{}", self.prefix(), name.value());
                quote!(#topic)
            }
            None => {
                let topic = self.prefix();
                quote!(#topic)
            }
        };
        quote!(::scoop::__private::filtered::<#message>(#topic))
    }

    fn prefix(&self) -> String {
        match self.outcome {
            Some(outcome) => format!("{TOPIC}.{}", OUTCOMES[outcome]),
            None => TOPIC.to_owned(),
        }
    }

    fn check(&self, name: &LitStr, errors: &mut Errors) {
        let max = TOPIC_BYTES_MAX - self.prefix().len() - 1;
        let bytes = name.value().len();
        if bytes == 0 || bytes > max {
            let hint = "handle the failures of all sagas, and ignore the others";
            errors.at(
                name,
                format!("a saga in this filter has a name of 1 to {max} bytes, this one has {bytes}; {hint}"),
            );
        }
    }
}
