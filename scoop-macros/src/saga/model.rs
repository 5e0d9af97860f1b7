//! Turns syntax into a saga that is sound as far as tokens show. Our errors come from here and from the modules
//! it uses: names, settings and the form of functions.

use std::time::Duration;

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::{Expr, ExprLit, GenericArgument, Ident, Lit, LitStr, Meta, PathArguments, Type};

use super::awaits::Awaits;
use super::delivery;
pub(super) use super::delivery::Delivery;
use super::filter::Filter;
use super::launches;
use super::limits::{self, Limits};
use super::parse::{Block, Function};
use super::resolve::Resolver;
pub(super) use super::retry::{Retry, When};
use super::schedule::{self, Schedule};
pub(super) use super::signature::ReturnKind;
use super::signature::{CheckedSignature, Role, SagaTypes, output};
use super::subscription::{self, Messages};
use super::types::{last_segment, strip_groups, text};
use super::unnamed;
use crate::duration;
use crate::errors::Errors;
use crate::misplaced::is;
use crate::names::{self, Kind, kebab_case};
use crate::settings::Settings;
use crate::wait;

/// The parts of a saga that are known even with mistakes in it.
pub(super) struct Outline {
    pub(super) ty: Type,
    pub(super) ident: Ident,
    pub(super) step_enum: Ident,
    pub(super) variants: Vec<Variant>,
    /// Its message, if `Saga` can be implemented for the type.
    pub(super) message: Option<Type>,
    /// What this is, if there are several.
    pub(super) messages: Option<Messages>,
}

pub(super) struct Variant {
    pub(super) ident: Ident,
    pub(super) name: String,
    /// The number of its steps in the protocol.
    pub(super) steps: usize,
}

pub(super) struct Saga {
    pub(super) name: String,
    pub(super) was: Vec<String>,
    pub(super) message: Type,
    pub(super) filter: Option<Filter>,
    /// The schedule, and the topic of its ticks.
    pub(super) schedule: Option<(Schedule, String)>,
    pub(super) limits: Limits,
    /// The function that returns the strategy of its launches.
    pub(super) wait: Option<TokenStream>,
    /// How long runs stay with the definition under which they began.
    pub(super) pin: Option<Pin>,
    pub(super) steps: Vec<Step>,
}

/// How long runs stay with the definition under which they began.
#[derive(Clone, Copy)]
pub(super) enum Pin {
    WhileLiving,
    Always,
}

pub(super) struct Step {
    pub(super) variant: Ident,
    pub(super) name: String,
    pub(super) was: Vec<String>,
    pub(super) timeout: Option<Duration>,
    pub(super) sleep: Option<Duration>,
    pub(super) retry: Option<Retry>,
    pub(super) rollback_retry: Option<Retry>,
    pub(super) invoke: Call,
    pub(super) at: Option<Call>,
    pub(super) awaits: Option<AwaitsCall>,
    pub(super) finally: Option<Call>,
    pub(super) rollback: Option<Call>,
    pub(super) on_child_failure: Option<Call>,
    pub(super) delivery: Delivery,
    /// The messages that it declares to launch, if it declares any.
    pub(super) launches: Option<Vec<Type>>,
}

/// The signal that a step awaits, and the call of the function that returns its key.
pub(super) struct AwaitsCall {
    pub(super) ty: Type,
    pub(super) by: Call,
    pub(super) within: Option<Duration>,
}

pub(super) struct Call {
    pub(super) function: Ident,
    pub(super) values: Vec<Value>,
    pub(super) end: ReturnKind,
}

pub(super) struct Value {
    /// As written in the step that returns it: the compiler reports missing traits there.
    pub(super) ty: Type,
    pub(super) optional: bool,
    pub(super) producer: Ident,
    /// The persisted name of that step.
    pub(super) step: String,
}

/// `pin`, `pin = "always"`.
fn pin(settings: &Settings, errors: &mut Errors) -> Option<Pin> {
    if settings.is_bare("pin") {
        return Some(Pin::WhileLiving);
    }
    let takes = "nothing or `\"always\"`: write `pin`, and a run stays with the definition under which it began \
                 while a process has that; or `pin = \"always\"`, and it is stuck without one";
    settings.expression("pin", takes, errors, |value| match value {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) if text.value() == "always" => Some(Pin::Always),
        _ => None,
    })
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
    let was: Vec<_> = names::former(Kind::Saga, &settings, &name, errors).iter().map(LitStr::value).collect();
    let limits = limits::read(&settings, block, errors);
    let wait = wait::function(&settings, errors);
    let pin = pin(&settings, errors);
    let schedule = schedule::read(&settings, errors)
        .map(|schedule| (schedule, schedule::topic(&name, written_name.as_ref(), &ident, errors)));
    if let Some(key) = settings.key("was").filter(|_| schedule.is_some()) {
        let message = "the schedule of a saga is stored under its name; keep that with `name = \"..\"`";
        errors.at(key, message);
    }
    let first_name = was.first().unwrap_or(&name);
    let subscription = subscription::read(block, &ident, first_name, errors);
    let (message, messages, filter) =
        subscription.map_or((None, None, None), |it| (Some(it.message), it.messages, it.filter));
    if let (Some(several), true) = (&messages, schedule.is_some()) {
        let message =
            "a saga with a schedule takes its ticks only; write `#[subscribes(Tick)]`, and another saga";
        errors.at(&several.keyword, message);
    }
    let is_joining = messages.as_ref().is_some_and(|several| several.join.is_some());
    limits::refuse_queue(&settings, schedule.is_some(), is_joining, errors);
    let step_enum = quote::format_ident!("{ident}Step");

    let steps_written = block.functions().filter(|function| !function.steps.is_empty());
    let outputs = steps_written.filter_map(|function| output(&function.sig)).collect();
    let frame = SagaTypes { message: message.as_ref(), step_enum: &step_enum, outputs };
    let drafts = drafts(block, &frame, errors);
    let variants = variants(&drafts, &step_enum, errors);
    if drafts.is_empty() {
        let message = "a saga has at least one step; write `#[step]` on a method";
        errors.at(&block.self_ty, message);
    }
    let steps = steps(&drafts, Resolver::new(block, &frame, &drafts), errors);
    // A setting with a mistake does not count as a reference to its function.
    if errors.is_empty() {
        unnamed::report(block, errors);
    }

    let outline = Outline {
        ty: block.self_ty.clone(),
        message: message.clone().filter(|_| can_be_saga && messages.as_ref().is_none_or(Messages::is_sound)),
        messages,
        ident,
        step_enum,
        variants,
    };
    let message = message.filter(|_| errors.is_empty());
    let saga = message.map(|message| Saga { name, was, message, filter, schedule, limits, wait, pin, steps });
    (Some(outline), saga)
}

fn saga_type(block: &Block, errors: &mut Errors) -> Option<Ident> {
    for repeated in &block.repeated {
        errors.at(repeated, "`#[saga]` stands here twice; remove one");
    }
    if let Some(of_trait) = &block.of_trait {
        let ty = text(&block.self_ty);
        let hint = format!("write `impl {ty} {{ .. }}`");
        let message = format!("`#[saga]` belongs on a block without a trait; {hint}");
        errors.at(of_trait, message);
        return None;
    }
    let segment = last_segment(&block.self_ty);
    if segment.is_none() {
        errors.at(&block.self_ty, "a saga is a struct or an enum; name one");
    }
    segment.map(|segment| segment.ident.clone())
}

/// Whether the block is for several types, or for a type that borrows.
fn is_generic(block: &Block, errors: &mut Errors) -> bool {
    let mut own_errors = Errors::default();
    let generics = &block.generics;
    let message = "a saga cannot be generic: it is stored by its name; \
                   keep what varies in a field, such as `Box<dyn Trait>`";
    if !generics.params.is_empty() {
        own_errors.at(generics, message);
    } else if let Some(where_clause) = &generics.where_clause {
        own_errors.at(where_clause, message);
    }
    let arguments = last_segment(&block.self_ty).map(|segment| &segment.arguments);
    if let Some(PathArguments::AngleBracketed(arguments)) = arguments
        && generics.params.is_empty()
    {
        let is_lifetime = |it: &&GenericArgument| matches!(it, GenericArgument::Lifetime(_));
        for lifetime in arguments.args.iter().filter(is_lifetime) {
            let message = "a saga lives as long as the program; own what it borrows";
            own_errors.at(lifetime, message);
        }
    }
    let is_generic = !own_errors.is_empty();
    errors.append(own_errors);
    is_generic
}

/// A step before the functions it names are looked up.
pub(super) struct Draft<'a> {
    pub(super) function: &'a Ident,
    pub(super) name: String,
    was: Vec<LitStr>,
    pub(super) shape: CheckedSignature<'a>,
    pub(super) finally: Option<Ident>,
    variant: Ident,
    written_name: Option<LitStr>,
    timeout: Option<Duration>,
    sleep: Option<Duration>,
    retry: Option<Retry>,
    rollback_retry: Option<Retry>,
    at: Option<Ident>,
    pub(super) awaits: Option<Awaits>,
    rollback: Option<Ident>,
    on_child_failure: Option<Ident>,
    delivery: Delivery,
    launches: Option<Vec<Type>>,
}

impl Draft<'_> {
    pub(super) fn output(&self) -> Option<&Type> {
        match &self.shape.end {
            Some(ReturnKind::Output(output) | ReturnKind::JumpWith(output)) => Some(output),
            _ => None,
        }
    }

    pub(super) fn awaits(&self, ty: &Type) -> bool {
        self.awaits.as_ref().is_some_and(|awaits| strip_groups(&awaits.ty) == strip_groups(ty))
    }

    pub(super) fn returns(&self, ty: &Type) -> bool {
        self.output() == Some(strip_groups(ty))
    }

    fn named_at(&self) -> &dyn ToTokens {
        match &self.written_name {
            Some(literal) => literal,
            None => self.function,
        }
    }

    fn names(&self) -> impl Iterator<Item = String> {
        self.with_suffixes(&self.name)
    }

    fn with_suffixes(&self, name: &str) -> impl Iterator<Item = String> {
        self.suffixes().map(move |suffix| format!("{name}{suffix}"))
    }

    fn named(&self, mut names: impl Iterator<Item = String>) -> Option<String> {
        names.find(|name| self.names().any(|it| it == *name))
    }

    fn was_named(&self, mut names: impl Iterator<Item = String>) -> Option<String> {
        let had =
            |name: &String| self.was.iter().any(|was| self.with_suffixes(&was.value()).any(|it| it == *name));
        names.find(had)
    }

    fn suffixes(&self) -> impl Iterator<Item = &'static str> {
        let waiting = self.at.as_ref().map(|_| names::WAITING);
        let awaiting = self.awaits.as_ref().map(|_| names::AWAITING);
        let finally = self.finally.as_ref().map(|_| names::FINALLY);
        waiting.into_iter().chain(awaiting).chain([""]).chain(finally)
    }
}

fn drafts<'a>(block: &'a Block, frame: &SagaTypes<'_>, errors: &mut Errors) -> Vec<Draft<'a>> {
    let steps = block.functions().filter(|function| !function.steps.is_empty());
    steps.map(|function| draft(function, block, frame, errors)).collect()
}

fn draft<'a>(function: &'a Function, block: &Block, frame: &SagaTypes<'_>, errors: &mut Errors) -> Draft<'a> {
    let settings = step_settings(function, errors);
    let ident = &function.sig.ident;
    let written_name = settings.text("name", errors);
    let mut duration = |key| {
        let written = settings.text(key, errors)?;
        errors.record(duration::parse(&written))
    };
    let (timeout, sleep) = (duration("timeout"), duration("sleep"));
    let name = names::stored(Kind::Step, written_name.as_ref(), ident, str::to_owned, errors);
    let draft = Draft {
        function: ident,
        variant: names::variant(ident),
        was: names::former(Kind::Step, &settings, &name, errors),
        name,
        written_name,
        timeout,
        sleep,
        retry: Retry::read("retry", &settings, block, errors),
        rollback_retry: Retry::read("rollback_retry", &settings, block, errors),
        at: settings.function("at", errors),
        awaits: Awaits::read(&settings, errors),
        finally: settings.function("finally", errors),
        rollback: settings.function("rollback", errors),
        on_child_failure: settings.function("on_child_failure", errors),
        delivery: delivery::read(&settings, errors),
        launches: launches::read(&settings, errors),
        shape: frame.read(&function.sig, Role::Step, errors),
    };
    if let Some(key) = settings.key("rollback_retry").filter(|_| settings.key("rollback").is_none()) {
        let message = "this step has no `rollback` to try again; name one or remove this";
        errors.at(key, message);
    }
    if let Some(key) = settings.key("awaits").filter(|_| settings.key("at").is_some()) {
        let message = "a step waits for a time or for a signal; put one of the two on a step before it";
        errors.at(key, message);
    }
    if Kind::Step.refuses(&draft.name).is_none()
        && let Some(why) = draft.names().find_map(|name| Kind::Step.refuses(&name))
    {
        let added = "counting what `at` and `finally` add to it; write a shorter `name`";
        errors.at(draft.named_at(), format!("{why}, {added}"));
    }
    draft
}

const STEP_KEYS: [&str; 13] = [
    "rollback",
    "on_child_failure",
    "finally",
    "at",
    "awaits",
    "sleep",
    "timeout",
    "retry",
    "rollback_retry",
    "delivery",
    "launches",
    "name",
    "was",
];

fn step_settings(function: &Function, errors: &mut Errors) -> Settings {
    for repeated in &function.steps[1..] {
        errors.at(repeated, "`#[step]` stands here twice; remove one");
    }
    for conditional in function.attrs.iter().filter(|attribute| is(attribute, "cfg")) {
        let why = "stored runs rely on the steps, which cannot be conditional";
        errors.at(conditional, format!("{why}; write `#[cfg]` on the saga"));
    }
    match &function.steps[0].meta {
        Meta::Path(_) => Settings::default(),
        Meta::List(list) => Settings::read("#[step]", &STEP_KEYS, list.tokens.clone(), errors),
        Meta::NameValue(other) => {
            errors.at(other, "write settings in parentheses: `#[step(name = \"..\")]`");
            Settings::default()
        }
    }
}

/// The variants of the step enum. No two steps share one, nor a persisted name.
fn variants(drafts: &[Draft<'_>], step_enum: &Ident, errors: &mut Errors) -> Vec<Variant> {
    let mut variants: Vec<Variant> = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let Draft { function, name, variant, .. } = draft;
        let earlier = &drafts[..index];
        let twin = earlier.iter().find(|it| it.variant == *variant);
        if let Some(name) = earlier.iter().find_map(|it| it.named(draft.names())) {
            let message = format!("two steps are stored as `{name}`; give one of them another `name`");
            errors.at(draft.named_at(), message);
        } else if let Some(Draft { function: twin, .. }) = twin {
            let variant = format!("`{step_enum}::{variant}`");
            let message = format!("this and `{twin}` would both be {variant}; rename one of them");
            errors.at(function, message);
        }
        if twin.is_none() {
            let steps = draft.names().count();
            variants.push(Variant { ident: variant.clone(), name: name.clone(), steps });
        }
        former_names(drafts, index, errors);
    }
    variants
}

/// Checks that no step had a name that another has, or had.
fn former_names(drafts: &[Draft<'_>], index: usize, errors: &mut Errors) {
    let draft = &drafts[index];
    for literal in &draft.was {
        let (was, own) = (literal.value(), &draft.name);
        let mut others = drafts.iter().enumerate().filter(|(other, _)| *other != index);
        if let Some(taken) = others.clone().find_map(|(_, it)| it.named(draft.with_suffixes(&was))) {
            let message = format!(
                "`{was}` cannot be a former name of `{own}`: this saga has a step `{taken}`; remove it from `was`, or give \
                 the step `{taken}` another `name`"
            );
            errors.at(literal, message);
        } else if let Some((_, twin)) =
            others.find(|(other, it)| *other < index && it.was_named(draft.with_suffixes(&was)).is_some())
        {
            let twin = &twin.name;
            let message =
                format!("`{was}` is a former name of `{twin}` as well; remove it from one of the two `was`");
            errors.at(literal, message);
        }
    }
}

fn steps(drafts: &[Draft<'_>], mut resolver: Resolver<'_>, errors: &mut Errors) -> Vec<Step> {
    let mut steps = Vec::new();
    for (index, draft) in drafts.iter().enumerate() {
        let mut handler = |name: &Option<Ident>, role| {
            let name = name.as_ref()?;
            resolver.handler(name, role, index, errors)
        };
        let rollback = handler(&draft.rollback, Role::Compensation);
        let on_child_failure = handler(&draft.on_child_failure, Role::ChildFailureHandler);
        let at = handler(&draft.at, Role::Due);
        let by = handler(&draft.awaits.as_ref().and_then(|awaits| awaits.by.clone()), Role::SignalKey);
        let awaits = draft.awaits.as_ref().zip(by).map(|(Awaits { ty, within, .. }, by)| AwaitsCall {
            ty: ty.clone(),
            by,
            within: *within,
        });
        let finally = handler(&draft.finally, Role::Cleanup);
        let invoke = resolver.invoke(index, errors);
        steps.extend(invoke.map(|invoke| Step {
            variant: draft.variant.clone(),
            name: draft.name.clone(),
            was: draft.was.iter().map(LitStr::value).collect(),
            timeout: draft.timeout,
            sleep: draft.sleep,
            retry: draft.retry.clone(),
            rollback_retry: draft.rollback_retry.clone(),
            invoke,
            at,
            awaits,
            finally,
            rollback,
            on_child_failure,
            delivery: draft.delivery,
            launches: draft.launches.clone(),
        }));
    }
    steps
}
