//! The form of a function that a saga calls: its parameters and its result.

use syn::{Ident, ReceiverKind, ReturnType, Safety, Signature, Type};

use super::parameters;
use super::types::{
    behind_reference, ends_alike, is_named, last_segment, optional, strip_groups, text, type_arguments,
};
use crate::errors::Errors;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Role {
    Step,
    Compensation,
    ChildFailureHandler,
    Due,
    SignalKey,
    /// It cleans up after the step, failed or not.
    Cleanup,
}

impl Role {
    pub(super) fn has_failure(self) -> bool {
        matches!(self, Role::Compensation | Role::ChildFailureHandler)
    }
}

#[derive(Clone)]
pub(super) enum ReturnKind {
    Unit,
    Jump,
    JumpWith(Box<Type>),
    Output(Box<Type>),
    /// A jump, or the message of a new execution.
    AsNew,
}

pub(super) struct CheckedSignature<'a> {
    pub(super) values: Vec<Parameter<'a>>,
    /// Unknown if it is mistaken.
    pub(super) end: Option<ReturnKind>,
    pub(super) returned: Option<&'a Type>,
}

#[derive(Clone, Copy)]
pub(super) struct Parameter<'a> {
    /// `T` of `&T`, or of `Option<&T>`.
    pub(super) ty: &'a Type,
    /// Whether it is an `Option`: the step may not have run.
    pub(super) optional: bool,
}

pub(super) struct SagaTypes<'a> {
    /// Unknown if it is mistaken.
    pub(super) message: Option<&'a Type>,
    pub(super) step_enum: &'a Ident,
    pub(super) outputs: Vec<&'a Type>,
}

impl SagaTypes<'_> {
    pub(super) fn read<'a>(
        &self,
        sig: &'a Signature,
        role: Role,
        errors: &mut Errors,
    ) -> CheckedSignature<'a> {
        if role == Role::SignalKey && sig.asyncness.is_none() {
            // Most likely written like the key of a limit, so that the other checks would find the same mistake again.
            let stub = self.stub(&sig.ident, role);
            errors.at(
                &sig.ident,
                format!("the key of a signal comes from an `async` function; write `{stub}`"),
            );
            return CheckedSignature { values: vec![], end: None, returned: None };
        }
        qualifiers(sig, errors);
        receiver(sig, errors);
        let (values, end) = (parameters::read(self, sig, role, errors), self.end(sig, role, errors));
        CheckedSignature { values, end, returned: result(sig) }
    }

    /// The signature of a function in this role, for the user to copy.
    pub(super) fn stub(&self, name: &Ident, role: Role) -> String {
        let message = self.message.map_or("YourMessage".into(), text);
        let (failure, end) = match role {
            Role::Compensation => (", why: &Failure", "()"),
            Role::ChildFailureHandler => (", failure: &Failure", "()"),
            Role::Due => ("", "SystemTime"),
            Role::SignalKey => ("", "String"),
            Role::Step | Role::Cleanup => ("", "()"),
        };
        format!(
            "async fn {name}(&self, scope: &mut Scope<'_>, message: &{message}{failure}) -> Result<{end}>"
        )
    }

    pub(super) fn is_output(&self, parameter: &Type) -> bool {
        let ty = behind_reference(optional(parameter).unwrap_or(parameter));
        self.outputs.iter().any(|output| ends_alike(output, ty))
    }

    fn end(&self, sig: &Signature, role: Role, errors: &mut Errors) -> Option<ReturnKind> {
        let end = match result(sig).map(|ok| (ok, self.end_of(ok))) {
            Some((ok, Err(why))) => {
                errors.at(ok, why);
                return None;
            }
            Some((_, Ok(end))) => Some(end),
            None => None,
        };
        let allowed = match (&end, role) {
            (None, _) => false,
            (Some(_), Role::Step) | (Some(ReturnKind::Jump), Role::ChildFailureHandler) => true,
            (Some(ReturnKind::Output(ty)), Role::Due) => is_named(ty, "SystemTime"),
            (Some(end), Role::SignalKey) => matches!(end, ReturnKind::Output(_)),
            (Some(end), role) => matches!(end, ReturnKind::Unit) && role != Role::Due,
        };
        if allowed {
            return end;
        }
        let message = format!("{}; write {}", self.must_return(sig, role), self.returns(role));
        match &sig.output {
            ReturnType::Type(_, ty) => errors.at(ty, message),
            ReturnType::Default => errors.at(&sig.ident, message),
        }
        None
    }

    fn end_of(&self, ok: &Type) -> Result<ReturnKind, String> {
        match strip_groups(ok) {
            Type::Tuple(tuple) if tuple.elems.is_empty() => return Ok(ReturnKind::Unit),
            Type::ImplTrait(_) | Type::Infer(_) => {
                return Err("the value of a step is stored by its type; name the type".into());
            }
            _ => {}
        }
        let step_enum = self.step_enum;
        let segment = last_segment(ok);
        let next = match segment.map(|segment| segment.ident.to_string()).as_deref() {
            Some("Next") => format!("Next<{step_enum}>"),
            Some("With") => format!("With<{step_enum}, T>"),
            Some("ContinueAsNew") => {
                format!("ContinueAsNew<{step_enum}, {}>", self.message.map_or("YourMessage".into(), text))
            }
            _ => return Ok(ReturnKind::Output(Box::new(strip_groups(ok).clone()))),
        };
        let mut arguments = segment.into_iter().flat_map(type_arguments);
        if !arguments.next().is_some_and(|steps| is_named(steps, &step_enum.to_string())) {
            return Err(format!("the steps of this saga are `{step_enum}`; write `{next}`"));
        }
        if next.starts_with("Next") {
            return Ok(ReturnKind::Jump);
        }
        if next.starts_with("ContinueAsNew") {
            let is_own = |next| self.message.is_none_or(|message| ends_alike(next, message));
            return match arguments.next().is_some_and(is_own) {
                true => Ok(ReturnKind::AsNew),
                false => Err(format!("a new execution takes the message of this saga; write `{next}`")),
            };
        }
        match arguments.next().map(|value| (value, self.end_of(value))) {
            Some((_, Ok(ReturnKind::Output(value)))) => Ok(ReturnKind::JumpWith(value)),
            Some((_, Err(why))) => Err(why),
            Some((value, _)) => {
                Err(format!("`{}` is no value for other steps; write `Next<{step_enum}>`", text(value)))
            }
            None => Err(format!("a value goes along; write `{next}` with its type as `T`")),
        }
    }

    fn must_return(&self, sig: &Signature, role: Role) -> String {
        match role {
            Role::Step => format!("the step `{}` must return a `Result`", sig.ident),
            Role::Compensation => format!("`{}` undoes a step, which has no result", sig.ident),
            Role::ChildFailureHandler => {
                format!("`{}` handles a failure, which has no value", sig.ident)
            }
            Role::Due => format!("`{}` says when a step is due", sig.ident),
            Role::SignalKey => format!("`{}` says which signal a step awaits", sig.ident),
            Role::Cleanup => format!("`{}` cleans up after a step, which has no result", sig.ident),
        }
    }

    fn returns(&self, role: Role) -> String {
        let step_enum = self.step_enum;
        match role {
            Role::Step => format!(
                "`Result<()>`, `Result<Next<{step_enum}>>`, or `Result<T>` with a value for later steps"
            ),
            Role::Compensation | Role::Cleanup => "`Result<()>`".into(),
            Role::Due => "`Result<SystemTime>`".into(),
            Role::SignalKey => "`Result<String>`".into(),
            Role::ChildFailureHandler => format!("`Result<()>` or `Result<Next<{step_enum}>>`"),
        }
    }
}

pub(super) fn output(sig: &Signature) -> Option<&Type> {
    let ok = result(sig)?;
    match last_segment(ok) {
        Some(with) if with.ident == "With" => type_arguments(with).nth(1),
        Some(next) if next.ident == "Next" || next.ident == "ContinueAsNew" => None,
        _ => Some(strip_groups(ok)).filter(|ok| !matches!(ok, Type::Tuple(unit) if unit.elems.is_empty())),
    }
}

/// The `T` of `-> Result<T>`.
fn result(sig: &Signature) -> Option<&Type> {
    let ReturnType::Type(_, ty) = &sig.output else {
        return None;
    };
    type_arguments(last_segment(ty).filter(|segment| segment.ident == "Result")?).next()
}

fn qualifiers(sig: &Signature, errors: &mut Errors) {
    let name = &sig.ident;
    if sig.asyncness.is_none() {
        errors.at(sig.fn_token, format!("`{name}` must be `async`; write `async fn {name}`"));
    }
    if let Safety::Unsafe(unsafety) = &sig.safety {
        errors.at(unsafety, format!("the saga calls `{name}`, so it cannot be `unsafe`"));
    }
    if let Some(abi) = &sig.abi {
        errors.at(abi, format!("the saga calls `{name}`, so it cannot be `extern`"));
    }
    let generics = &sig.generics;
    let message = format!("`{name}` cannot be generic: only the saga calls it; remove this");
    if !generics.params.is_empty() {
        errors.at(generics, message);
    } else if let Some(where_clause) = &generics.where_clause {
        errors.at(where_clause, message);
    }
}

fn receiver(sig: &Signature, errors: &mut Errors) {
    let name = &sig.ident;
    match sig.receiver() {
        None => errors.at(name, format!("`{name}` must take `&self`; write it as the first parameter")),
        Some(receiver) => {
            if !matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) {
                let why = "many runs share one saga";
                errors.at(receiver, format!("{why}; write `&self`"));
            }
        }
    }
}
