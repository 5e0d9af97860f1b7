//! What names of functions and types of values mean in their saga.

use std::collections::BTreeMap;

use syn::{Ident, Type};

use super::model::{Call, Draft, Value};
use super::parse::{Block, Function};
use super::signature::{Frame, Role, Shape};
use super::types::text;
use crate::errors::Errors;
use crate::names::did_you_mean;

/// Looks up functions and values.
pub(super) struct Resolver<'a> {
    frame: &'a Frame<'a>,
    drafts: &'a [Draft<'a>],
    functions: BTreeMap<String, &'a Function>,
    /// What was checked before, so that a function which many steps name is reported once.
    shapes: BTreeMap<(String, Role), Shape<'a>>,
}

/// A function and the step whose values it may take.
#[derive(Clone, Copy)]
struct Caller<'a> {
    function: &'a Ident,
    role: Role,
    step: usize,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(block: &'a Block, frame: &'a Frame<'a>, drafts: &'a [Draft<'a>]) -> Self {
        let functions = block.functions().map(|it| (it.sig.ident.to_string(), it));
        Self { frame, drafts, functions: functions.collect(), shapes: BTreeMap::new() }
    }

    /// The call of the step itself.
    pub(super) fn invoke(&self, step: usize, errors: &mut Errors) -> Option<Call> {
        let Draft { function, shape, .. } = &self.drafts[step];
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
        if !self.shapes.contains_key(&key) {
            let shape = self.frame.read(&function.sig, role, errors);
            self.shapes.insert(key.clone(), shape);
        }
        let function = &function.sig.ident;
        self.call(Caller { function, role, step }, &self.shapes[&key], errors)
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
                let remedy = if meant.is_empty() { self.write(name, role) } else { meant };
                errors.at(name, format!("this `impl` block has no function `{name}`{remedy}"));
            }
        }
        None
    }

    /// The function that is missing, for the user to copy.
    fn write(&self, name: &Ident, role: Role) -> String {
        let message = self.frame.message.map_or("YourMessage".into(), text);
        let failure = if role == Role::Compensation { "why" } else { "failure" };
        format!(
            "; write `async fn {name}(&self, scope: &mut Scope<'_>, message: &{message}, \
             {failure}: &Failure) -> Result<()>`"
        )
    }

    fn call(&self, caller: Caller<'_>, shape: &Shape<'_>, errors: &mut Errors) -> Option<Call> {
        let values: Vec<_> = shape.values.iter().map(|ty| self.value(caller, ty, errors)).collect();
        Some(Call {
            function: caller.function.clone(),
            values: values.into_iter().collect::<Option<_>>()?,
            end: shape.end.clone()?,
        })
    }

    /// The step whose value a parameter takes. The value of the step itself goes before those of
    /// earlier steps: a compensation undoes what exactly this step did.
    fn value(&self, caller: Caller<'_>, ty: &Type, errors: &mut Errors) -> Option<Value> {
        let (earlier, this) = (&self.drafts[..caller.step], &self.drafts[caller.step]);
        let own = caller.role != Role::Step && this.returns(ty);
        let candidates = earlier.iter().filter(|step| !own && step.returns(ty));
        let producers: Vec<_> = candidates.chain(own.then_some(this)).collect();
        match producers.as_slice() {
            [producer] => Some(Value {
                ty: ty.clone(),
                producer: producer.function.clone(),
                step: producer.name.clone(),
            }),
            [] => {
                self.nobody_returns(caller, ty, errors);
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

    fn nobody_returns(&self, caller: Caller<'_>, ty: &Type, errors: &mut Errors) {
        let is_handler = caller.role != Role::Step;
        let visible = &self.drafts[..caller.step + usize::from(is_handler)];
        if visible.iter().any(|step| step.shape.end.is_none()) {
            return; // That step's own error comes first.
        }
        let step = self.drafts[caller.step].function;
        let who = match is_handler {
            true => format!("neither `{step}` nor a step before it returns"),
            false => format!("no step before `{step}` returns"),
        };
        let ty_text = text(ty);
        let remedy = match self.drafts.iter().find(|step| step.returns(ty)) {
            Some(later) if later.function == step => {
                format!("`{step}` itself does, which is too late; remove the parameter")
            }
            Some(later) => format!("move `{}`, which does, before it", later.function),
            None => format!("let one return `Result<{ty_text}>` or remove the parameter"),
        };
        errors.at(ty, format!("{who} `{ty_text}`; {remedy}"));
    }
}
