//! Resolves names of functions, and types of values, in their saga.

use std::collections::{BTreeMap, BTreeSet};

use syn::ext::IdentExt;
use syn::{Ident, Type};

use super::model::{Call, Draft, Value};
use super::parse::{Block, Function};
use super::signature::{CheckedSignature, Parameter, ReturnKind, Role, SagaTypes};
use super::types::{optional, strip_groups, text};
use crate::errors::Errors;
use crate::names::{self, did_you_mean};

pub(super) struct Resolver<'a> {
    frame: &'a SagaTypes<'a>,
    drafts: &'a [Draft<'a>],
    functions: BTreeMap<String, &'a Function>,
    /// Results of earlier checks, so that a function named by many steps is reported once.
    signatures: BTreeMap<(String, Role), CheckedSignature<'a>>,
    /// The handlers that jump and must not. Each is reported once, too.
    jumping: BTreeSet<String>,
}

/// A function, and the step that determines which values it may take.
#[derive(Clone, Copy)]
struct Caller<'a> {
    function: &'a Ident,
    role: Role,
    step: usize,
}

impl Caller<'_> {
    /// Whether it is called after the step has returned.
    fn is_afterwards(self) -> bool {
        matches!(self.role, Role::Compensation | Role::ChildFailureHandler)
    }

    /// Whether it belongs to one step only, so that the value of that step comes first.
    fn is_about_one_step(self) -> bool {
        self.is_afterwards() || self.role == Role::Cleanup
    }
}

impl<'a> Resolver<'a> {
    pub(super) fn new(block: &'a Block, frame: &'a SagaTypes<'a>, drafts: &'a [Draft<'a>]) -> Self {
        let functions = block.functions().map(|it| (it.sig.ident.to_string(), it));
        let functions = functions.collect();
        Self { frame, drafts, functions, signatures: BTreeMap::new(), jumping: BTreeSet::new() }
    }

    pub(super) fn invoke(&self, step: usize, errors: &mut Errors) -> Option<Call> {
        let Draft { function, shape, .. } = &self.drafts[step];
        self.must_not_jump(shape, step, errors);
        self.call(Caller { function, role: Role::Step, step }, shape, errors)
    }

    /// The call of the function that `step` names for the role.
    pub(super) fn handler(
        &mut self,
        name: &Ident,
        role: Role,
        step: usize,
        errors: &mut Errors,
    ) -> Option<Call> {
        let function = self.function(name, role, errors)?;
        let key = (name.to_string(), role);
        if !self.signatures.contains_key(&key) {
            let shape = self.frame.read(&function.sig, role, errors);
            self.signatures.insert(key.clone(), shape);
        }
        let (function, shape) = (&function.sig.ident, &self.signatures[&key]);
        if role == Role::ChildFailureHandler
            && !self.jumping.contains(&key.0)
            && self.must_not_jump(shape, step, errors)
        {
            self.jumping.insert(key.0.clone());
        }
        self.call(Caller { function, role, step }, shape, errors)
    }

    /// Reports a cleanup that a jump would skip: the cleanup comes right after its step. Returns whether there
    /// is one.
    fn must_not_jump(&self, shape: &CheckedSignature<'_>, step: usize, errors: &mut Errors) -> bool {
        let jumps = matches!(shape.end, Some(ReturnKind::Jump | ReturnKind::JumpWith(_) | ReturnKind::AsNew));
        let is_wrong = jumps && self.drafts[step].finally.is_some();
        if is_wrong {
            let message = "a step with `finally` cannot jump past it; jump in a step after it";
            errors.at(shape.returned, message);
        }
        is_wrong
    }

    fn function(&self, name: &Ident, role: Role, errors: &mut Errors) -> Option<&'a Function> {
        let found = self.functions.get(&name.to_string()).copied();
        let is_step = |it: &Function| !it.steps.is_empty();
        match found {
            Some(function) if !is_step(function) => return Some(function),
            Some(_) => {
                let message = "is itself a step; name a function without `#[step]`";
                errors.at(name, format!("`{name}` {message}"));
            }
            None => {
                let candidates = self.functions.iter().filter(|(_, it)| !is_step(it));
                let meant = did_you_mean(&name.to_string(), candidates.map(|(name, _)| &**name));
                let stub = || format!("; write `{}`", self.frame.stub(name, role));
                let hint = if meant.is_empty() { stub() } else { meant };
                errors.at(name, format!("this `impl` block has no function `{name}`{hint}"));
            }
        }
        None
    }

    fn call(&self, caller: Caller<'_>, shape: &CheckedSignature<'_>, errors: &mut Errors) -> Option<Call> {
        let values: Vec<_> = shape.values.iter().map(|it| self.value(caller, *it, errors)).collect();
        Some(Call {
            function: caller.function.clone(),
            values: values.into_iter().collect::<Option<_>>()?,
            end: shape.end.clone()?,
        })
    }

    /// The step that a parameter takes its value from. A compensation undoes exactly its own step, so the value
    /// of that step comes before those of others.
    fn value(&self, caller: Caller<'_>, it: Parameter<'_>, errors: &mut Errors) -> Option<Value> {
        let Parameter { ty, optional } = it;
        if let Some(signal) = self.signal(caller, it, errors) {
            return signal;
        }
        let this = &self.drafts[caller.step];
        let own = caller.is_about_one_step() && this.returns(ty);
        let visible = match own {
            true if optional || caller.is_afterwards() => std::slice::from_ref(this),
            true => &[],
            false => self.visible(caller, optional),
        };
        let producers: Vec<_> = visible.iter().filter(|step| step.returns(ty)).collect();
        match producers.as_slice() {
            [producer] => Some(Value {
                ty: producer.output().unwrap_or(ty).clone(),
                optional,
                producer: producer.function.clone(),
                step: producer.name.clone(),
            }),
            [] => {
                self.refuse_missing_value(caller, it, errors);
                None
            }
            [one, .., other] => {
                let (one, other) = (one.function, other.function);
                let message = "let each return a type of its own";
                errors.at(ty, format!("both `{one}` and `{other}` return `{}`; {message}", text(ty)));
                None
            }
        }
    }

    /// The signal of this type, if a step awaits one that the caller may take; without a value after an error.
    fn signal(&self, caller: Caller<'_>, it: Parameter<'_>, errors: &mut Errors) -> Option<Option<Value>> {
        let Parameter { ty, optional } = it;
        let before_it = matches!(caller.role, Role::Due | Role::SignalKey);
        let visible = match optional {
            true => self.drafts,
            false => &self.drafts[..caller.step + usize::from(!before_it)],
        };
        let awaiting: Vec<_> = visible.iter().filter(|step| step.awaits(ty)).collect();
        let (step, awaits) = match awaiting.as_slice() {
            [] => return None,
            [step] => (step, step.awaits.as_ref()?),
            [one, .., other] => {
                let (one, other, ty_text) = (one.function, other.function, text(ty));
                let message = "let each await a type of its own";
                errors.at(ty, format!("both `{one}` and `{other}` await `{ty_text}`; {message}"));
                return Some(None);
            }
        };
        if awaits.within.is_some() && !optional {
            let message = format!("the signal may not come in time; take `Option<&{}>`", text(ty));
            errors.at(ty, message);
            return Some(None);
        }
        Some(Some(Value {
            ty: awaits.ty.clone(),
            optional,
            producer: quote::format_ident!("signal_of_{}", step.function.unraw()),
            step: format!("{}{}", step.name, names::AWAITING),
        }))
    }

    /// The steps with possible values. After a jump back these are all steps, but only an `Option` can do
    /// without a value.
    fn visible(&self, caller: Caller<'_>, optional: bool) -> &'a [Draft<'a>] {
        match optional {
            true => self.drafts,
            false => &self.drafts[..caller.step + usize::from(caller.is_afterwards())],
        }
    }

    fn refuse_missing_value(&self, caller: Caller<'_>, it: Parameter<'_>, errors: &mut Errors) {
        let Parameter { ty, optional } = it;
        if self.visible(caller, optional).iter().any(|step| step.shape.end.is_none()) {
            return; // That step's own error comes first.
        }
        let step = self.drafts[caller.step].function;
        let missing = match caller.role {
            _ if optional => "no step returns".into(),
            Role::Compensation | Role::ChildFailureHandler => {
                format!("neither `{step}` nor a step before it returns")
            }
            Role::Step | Role::Due | Role::SignalKey | Role::Cleanup => {
                format!("no step before `{step}` returns")
            }
        };
        let hint = self.hint(caller, ty);
        errors.at(ty, format!("{missing} `{}`; {hint}", text(ty)));
    }

    /// The remedy for a value that no step has returned.
    fn hint(&self, caller: Caller<'_>, ty: &Type) -> String {
        let (this, ty_text) = (&self.drafts[caller.step], text(ty));
        let step = this.function;
        if this.returns(ty) {
            return match caller.role {
                Role::Cleanup => {
                    format!("`{step}` itself may fail before it does; take `Option<&{ty_text}>`")
                }
                _ => format!(
                    "`{step}` itself does; take `Option<&{ty_text}>`, which is none in the first iteration"
                ),
            };
        }
        match self.drafts.iter().find(|step| step.returns(ty)) {
            Some(later) => format!(
                "move `{}`, which does, before it, or take `Option<&{ty_text}>` if a jump leads back",
                later.function
            ),
            None => self
                .hint_for_option(ty)
                .unwrap_or_else(|| format!("let one return `Result<{ty_text}>` or remove the parameter")),
        }
    }

    /// The remedy where `Option<&T>` and `&Option<T>` were mixed up.
    fn hint_for_option(&self, ty: &Type) -> Option<String> {
        let inside = optional(ty).map(strip_groups);
        self.drafts.iter().find_map(|step| {
            let output = step.output()?;
            let written = if inside == Some(output) {
                format!("Option<&{}>", text(output))
            } else if optional(output).map(strip_groups) == Some(strip_groups(ty)) {
                format!("&{}", text(output))
            } else {
                return None;
            };
            Some(format!("`{}` returns `{}`; write `{written}`", step.function, text(output)))
        })
    }
}
