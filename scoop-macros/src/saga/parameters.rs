//! The parameters of a function that a saga calls, and the order in which it passes them.

use quote::ToTokens;
use syn::{FnArg, PatType, ReturnType, Signature, Type};

use super::signature::{Parameter, Role, SagaTypes};
use super::types::{
    behind_reference, ends_alike, is_named, mutably_referenced, optional, referenced, strip_groups, text,
};
use crate::errors::Errors;

struct Sorted<'a> {
    scope: Option<&'a PatType>,
    message: Option<&'a PatType>,
    values: Vec<&'a PatType>,
    failure: Option<&'a PatType>,
}

/// Checks the parameters. Returns the values of steps among them.
pub(super) fn read<'a>(
    frame: &SagaTypes<'_>,
    sig: &'a Signature,
    role: Role,
    errors: &mut Errors,
) -> Vec<Parameter<'a>> {
    let sorted = Sorted::of(frame, sig, role);
    if let Some(what) = sorted.missing(role) {
        let write = sorted.signature(frame, sig, role);
        errors.at(&sig.ident, format!("`{}` must take {what}; write `{write}`", sig.ident));
    } else if let Some((misplaced, rule)) = sorted.misplaced(sig) {
        let write = sorted.signature(frame, sig, role);
        errors.at(misplaced, format!("{rule}; write `{write}`"));
    }
    sorted.by_reference(frame, errors);
    sorted.values.iter().filter_map(|value| self::value(value, role, errors)).collect()
}

impl<'a> Sorted<'a> {
    fn of(frame: &SagaTypes<'_>, sig: &'a Signature, role: Role) -> Self {
        let mut left: Vec<_> = typed(sig).collect();
        let mut take = |is: &dyn Fn(&PatType) -> bool| {
            let index = left.iter().position(|it| is(it))?;
            Some(left.remove(index))
        };
        let is_message =
            |it: &PatType| frame.message.is_some_and(|message| ends_alike(behind_reference(&it.ty), message));
        let is_failure = |it: &PatType| is_named(behind_reference(&it.ty), "Failure");
        let scope = take(&|it| is_named(behind_reference(&it.ty), "Scope"));
        let scope = scope.or_else(|| take(&|it| is_called(it, "scope")));
        let message = take(&is_message);
        let failure = if role.has_failure() { take(&is_failure) } else { None };
        // A parameter with a type that no step returns is treated as a wrong message.
        let message = message.or_else(|| take(&|it| !is_failure(it) && !frame.is_output(&it.ty)));
        Self { scope, message, values: left, failure }
    }

    fn missing(&self, role: Role) -> Option<String> {
        let failure = role.has_failure() && self.failure.is_none();
        let missing = [
            (self.scope.is_none(), "the scope"),
            (self.message.is_none(), "the message"),
            (failure, "the failure"),
        ];
        let missing: Vec<_> = missing.into_iter().filter_map(|(is, what)| is.then_some(what)).collect();
        (!missing.is_empty()).then(|| missing.join(" and "))
    }

    /// The first misplaced parameter, and the rule that it breaks.
    fn misplaced(&self, sig: &'a Signature) -> Option<(&'a PatType, &'static str)> {
        let scope = self.scope.map(|it| (it, "the scope comes first"));
        let message = self.message.map(|it| (it, "the message comes right after the scope"));
        let values = self.values.iter().map(|it| (*it, "the failure comes last"));
        let failure = self.failure.map(|it| (it, "the failure comes last"));
        let expected = scope.into_iter().chain(message).chain(values).chain(failure);
        let compared = typed(sig).zip(expected);
        let mut wrong = compared.filter(|(written, (expected, _))| !std::ptr::eq(*written, *expected));
        wrong.next().map(|(written, (_, rule))| (written, rule))
    }

    /// The signature to write: the given parameters in their order, and the missing ones.
    fn signature(&self, frame: &SagaTypes<'_>, sig: &Signature, role: Role) -> String {
        let message = frame.message.map_or("YourMessage".into(), text);
        let written = |it: &PatType| format!("{}: {}", it.pat.to_token_stream(), text(&it.ty));
        let scope = self.scope.filter(|it| is_named(behind_reference(&it.ty), "Scope")).map(written);
        let mut parameters = vec!["&self".into(), scope.unwrap_or("scope: &mut Scope<'_>".into())];
        parameters.push(self.message.map_or(format!("message: &{message}"), written));
        parameters.extend(self.values.iter().map(|it| written(it)));
        if role.has_failure() {
            parameters.push(self.failure.map_or("failure: &Failure".into(), written));
        }
        let returns = match &sig.output {
            ReturnType::Type(_, ty) => text(ty),
            ReturnType::Default => "Result<()>".into(),
        };
        format!("async fn {}({}) -> {returns}", sig.ident, parameters.join(", "))
    }

    /// Checks that the scope, the message and the failure are references.
    fn by_reference(&self, frame: &SagaTypes<'_>, errors: &mut Errors) {
        if let Some(scope) = self.scope {
            let is_scope = mutably_referenced(&scope.ty).is_some_and(|ty| is_named(ty, "Scope"));
            if !is_scope {
                let message = "a function of a saga changes its scope; write `&mut Scope<'_>`";
                errors.at(&scope.ty, message);
            }
        }
        if let (Some(message), Some(subscribed)) = (self.message, frame.message) {
            let subscribed_text = text(subscribed);
            if !ends_alike(behind_reference(&message.ty), subscribed) {
                let hint = format!("write `&{subscribed_text}` here, before values of steps");
                errors.at(&message.ty, format!("this saga subscribes to `{subscribed_text}`; {hint}"));
            } else if referenced(&message.ty).is_none() {
                errors.at(
                    &message.ty,
                    format!("the message is passed by reference; write `&{subscribed_text}`"),
                );
            }
        }
        if let Some(failure) = self.failure.filter(|it| referenced(&it.ty).is_none()) {
            errors.at(&failure.ty, "the failure is passed by reference; write `&Failure`");
        }
    }
}

fn value<'a>(parameter: &'a PatType, role: Role, errors: &mut Errors) -> Option<Parameter<'a>> {
    let written = &*parameter.ty;
    let inside = optional(written);
    let Some(ty) = referenced(inside.unwrap_or(written)) else {
        let value = text(behind_reference(inside.unwrap_or(written)));
        let by_reference = if inside.is_some() { format!("Option<&{value}>") } else { format!("&{value}") };
        errors.at(written, format!("values of steps are passed by reference; write `{by_reference}`"));
        return None;
    };
    if is_named(ty, "Failure") {
        errors.at(written, one_failure(role));
    } else if matches!(strip_groups(ty), Type::ImplTrait(_)) {
        errors.at(ty, "values of steps are found by their type; name it");
    } else {
        return Some(Parameter { ty, optional: inside.is_some() });
    }
    None
}

fn one_failure(role: Role) -> &'static str {
    match role {
        Role::Due => "a step that is not yet due has no failure; remove the parameter",
        Role::SignalKey => "a step that awaits a signal has no failure; remove the parameter",
        Role::Cleanup => "what cleans up is called with or without a failure; remove the parameter",
        Role::Step => "a step has no failure; only compensations and child failure handlers do",
        Role::Compensation | Role::ChildFailureHandler => "there is one failure; remove the parameter",
    }
}

pub(crate) fn typed(sig: &Signature) -> impl Iterator<Item = &PatType> {
    sig.inputs.iter().filter_map(|input| match input {
        FnArg::Typed(parameter) => Some(parameter),
        FnArg::Receiver(_) => None,
    })
}

fn is_called(parameter: &PatType, name: &str) -> bool {
    matches!(&*parameter.pat, syn::Pat::Ident(pat) if pat.ident == name)
}
