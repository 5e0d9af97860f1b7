//! Syntax to a saga that is known to be sound as far as tokens tell. Our errors arise here and
//! in what this asks: names, settings and the form of functions.

use std::time::Duration;

use proc_macro2::TokenStream;
use syn::{GenericArgument, Ident, LitStr, Meta, PathArguments, Type};

use super::parse::{Block, Function};
use super::resolve::Resolver;
use super::schedule::{self, Schedule};
pub(super) use super::signature::End;
use super::signature::{Frame, Role, Shape};
use super::types::{bare, last_segment, text};
use crate::duration;
use crate::errors::Errors;
use crate::misplaced::is;
use crate::names::{self, Kind, kebab_case};
use crate::settings::Settings;

/// What can be said of a saga even if there are mistakes in it.
pub(super) struct Outline {
    pub(super) ty: Type,
    /// The name of the type.
    pub(super) ident: Ident,
    pub(super) step_enum: Ident,
    /// The variants of the step enum, each with the persisted name.
    pub(super) variants: Vec<(Ident, String)>,
    /// What it subscribes to, if `Saga` can be implemented for the type.
    pub(super) message: Option<Type>,
}

/// A saga without mistakes.
pub(super) struct Saga {
    pub(super) name: String,
    pub(super) message: Type,
    /// When it runs by itself, and the topic of its ticks.
    pub(super) schedule: Option<(Schedule, String)>,
    pub(super) steps: Vec<Step>,
}

/// A step: what to call, and when.
pub(super) struct Step {
    pub(super) variant: Ident,
    pub(super) name: String,
    pub(super) timeout: Option<Duration>,
    pub(super) invoke: Call,
    pub(super) rollback: Option<Call>,
    pub(super) on_child_failure: Option<Call>,
}

/// A call of one of the user's functions.
pub(super) struct Call {
    pub(super) function: Ident,
    pub(super) values: Vec<Value>,
    pub(super) end: End,
}

/// The value of a step, as a parameter.
pub(super) struct Value {
    pub(super) ty: Type,
    /// The function that returned it.
    pub(super) producer: Ident,
    /// The persisted name of that step.
    pub(super) step: String,
}

/// The outline, unless the type has no name, and the saga, unless there were errors.
pub(super) fn check(
    arguments: TokenStream,
    block: &Block,
    errors: &mut Errors,
) -> (Option<Outline>, Option<Saga>) {
    let Some(ident) = saga_type(block, errors) else {
        return (None, None);
    };
    let can_be_saga = !is_generic(block, errors);
    let settings = Settings::read("#[saga]", &schedule::KEYS, arguments, errors);
    let written_name = settings.text("name", errors);
    let name = names::stored(Kind::Saga, written_name.as_ref(), &ident, kebab_case, errors);
    let schedule = schedule::read(&settings, errors)
        .map(|schedule| (schedule, schedule::topic(&name, written_name.as_ref(), &ident, errors)));
    let message = message(block, &ident, errors);
    let step_enum = quote::format_ident!("{ident}Step");

    let frame = Frame { message: message.as_ref(), step_enum: &step_enum };
    let drafts = drafts(block, &frame, errors);
    let variants = variants(&drafts, &step_enum, errors);
    if drafts.is_empty() {
        let message = "a saga has at least one step; write `#[step]` on a method";
        errors.at(&block.self_ty, message);
    }
    let steps = steps(&drafts, Resolver::new(block, &frame, &drafts), errors);

    let outline = Outline {
        ty: block.self_ty.clone(),
        message: message.clone().filter(|_| can_be_saga),
        ident,
        step_enum,
        variants,
    };
    let message = message.filter(|_| errors.is_empty());
    let saga = message.map(|message| Saga { name, message, schedule, steps });
    (Some(outline), saga)
}

/// The name of the type, if a saga can be written on such a block.
fn saga_type(block: &Block, errors: &mut Errors) -> Option<Ident> {
    for repeated in &block.repeated {
        errors.at(repeated, "`#[saga]` stands here twice; remove one");
    }
    if let Some(of_trait) = &block.of_trait {
        let ty = text(&block.self_ty);
        let remedy = format!("write `impl {ty} {{ .. }}`");
        let message = format!("`#[saga]` belongs on a block without a trait; {remedy}");
        errors.at(of_trait, message);
        return None;
    }
    let segment = last_segment(&block.self_ty);
    if segment.is_none() {
        errors.at(&block.self_ty, "a saga is a struct or an enum; name one");
    }
    segment.map(|segment| segment.ident.clone())
}

/// Whether the block is for more than one type that lives as long as the program.
fn is_generic(block: &Block, errors: &mut Errors) -> bool {
    let mut errors_here = Errors::default();
    let generics = &block.generics;
    let message = "a saga cannot be generic: it is stored by its name; \
                   keep what varies in a field, such as `Box<dyn Trait>`";
    if !generics.params.is_empty() {
        errors_here.at(generics, message);
    } else if let Some(where_clause) = &generics.where_clause {
        errors_here.at(where_clause, message);
    }
    let arguments = last_segment(&block.self_ty).map(|segment| &segment.arguments);
    if let Some(PathArguments::AngleBracketed(arguments)) = arguments
        && generics.params.is_empty()
    {
        let is_lifetime = |it: &&GenericArgument| matches!(it, GenericArgument::Lifetime(_));
        for lifetime in arguments.args.iter().filter(is_lifetime) {
            let message = "a saga lives as long as the program; own what it borrows";
            errors_here.at(lifetime, message);
        }
    }
    let is_generic = !errors_here.is_empty();
    errors.append(errors_here);
    is_generic
}

/// What the saga subscribes to.
fn message(block: &Block, ident: &Ident, errors: &mut Errors) -> Option<Type> {
    let Some((first, more)) = block.subscribes.split_first() else {
        let message = format!("`{ident}` has no message; write `#[subscribes(YourMessage)]` below `#[saga]`");
        errors.at(&block.self_ty, message);
        return None;
    };
    for repeated in more {
        errors.at(repeated, "a saga subscribes to one message; remove this or write another saga");
    }
    match &first.meta {
        Meta::List(list) if !list.tokens.is_empty() => {
            let message = first.parse_args();
            let here = |error: syn::Error| syn::Error::new(error.span(), SUBSCRIBES);
            errors.keep(message.map_err(here))
        }
        other => {
            errors.at(other, SUBSCRIBES);
            None
        }
    }
}

const SUBSCRIBES: &str = "name one type of messages: `#[subscribes(YourMessage)]`";

/// A step before the functions it names are looked up.
pub(super) struct Draft<'a> {
    pub(super) function: &'a Ident,
    pub(super) name: String,
    pub(super) shape: Shape<'a>,
    variant: Ident,
    written_name: Option<LitStr>,
    timeout: Option<Duration>,
    rollback: Option<Ident>,
    on_child_failure: Option<Ident>,
}

impl Draft<'_> {
    pub(super) fn returns(&self, ty: &Type) -> bool {
        matches!(&self.shape.end, Some(End::Output(output)) if **output == *bare(ty))
    }
}

fn drafts<'a>(block: &'a Block, frame: &Frame<'_>, errors: &mut Errors) -> Vec<Draft<'a>> {
    let steps = block.functions().filter(|function| !function.steps.is_empty());
    steps.map(|function| draft(function, frame, errors)).collect()
}

fn draft<'a>(function: &'a Function, frame: &Frame<'_>, errors: &mut Errors) -> Draft<'a> {
    let settings = step_settings(function, errors);
    let ident = &function.sig.ident;
    let written_name = settings.text("name", errors);
    let timeout = settings.text("timeout", errors);
    Draft {
        function: ident,
        variant: names::variant(ident),
        name: names::stored(Kind::Step, written_name.as_ref(), ident, str::to_owned, errors),
        written_name,
        timeout: timeout.and_then(|timeout| errors.keep(duration::parse(&timeout))),
        rollback: settings.function("rollback", errors),
        on_child_failure: settings.function("on_child_failure", errors),
        shape: frame.read(&function.sig, Role::Step, errors),
    }
}

fn step_settings(function: &Function, errors: &mut Errors) -> Settings {
    for repeated in &function.steps[1..] {
        errors.at(repeated, "`#[step]` stands here twice; remove one");
    }
    for conditional in function.attrs.iter().filter(|attribute| is(attribute, "cfg")) {
        let why = "stored runs rely on the steps, which cannot be conditional";
        errors.at(conditional, format!("{why}; write `#[cfg]` on the saga"));
    }
    let keys = ["rollback", "on_child_failure", "name", "timeout"];
    match &function.steps[0].meta {
        Meta::Path(_) => Settings::default(),
        Meta::List(list) => Settings::read("#[step]", &keys, list.tokens.clone(), errors),
        Meta::NameValue(other) => {
            errors.at(other, "write settings in parentheses: `#[step(name = \"..\")]`");
            Settings::default()
        }
    }
}

/// The variants of the step enum. No two steps share one, nor a persisted name.
fn variants(drafts: &[Draft<'_>], step_enum: &Ident, errors: &mut Errors) -> Vec<(Ident, String)> {
    let mut variants: Vec<(Ident, String)> = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let Draft { function, name, variant, .. } = draft;
        let earlier = &drafts[..index];
        let twin = earlier.iter().find(|it| it.variant == *variant);
        if earlier.iter().any(|it| it.name == *name) {
            let message = format!("two steps are stored as `{name}`; give one of them another `name`");
            match &draft.written_name {
                Some(literal) => errors.at(literal, message),
                None => errors.at(function, message),
            }
        } else if let Some(Draft { function: twin, .. }) = twin {
            let variant = format!("`{step_enum}::{variant}`");
            let message = format!("this and `{twin}` would both be {variant}; rename one of them");
            errors.at(function, message);
        }
        if twin.is_none() {
            variants.push((variant.clone(), name.clone()));
        }
    }
    variants
}

/// The steps, with what they name looked up.
fn steps(drafts: &[Draft<'_>], mut resolver: Resolver<'_>, errors: &mut Errors) -> Vec<Step> {
    let mut steps = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let mut handler = |name: &Option<Ident>, role| {
            let name = name.as_ref()?;
            resolver.handler(name, role, index, errors)
        };
        let rollback = handler(&draft.rollback, Role::Compensation);
        let on_child_failure = handler(&draft.on_child_failure, Role::ChildFailureHandler);
        let invoke = resolver.invoke(index, errors);
        steps.extend(invoke.map(|invoke| Step {
            variant: draft.variant.clone(),
            name: draft.name.clone(),
            timeout: draft.timeout,
            invoke,
            rollback,
            on_child_failure,
        }));
    }
    steps
}
