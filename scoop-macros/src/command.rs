//! `#[command]`: an `impl` block as a command, about which an entity decides.

use std::time::Duration;

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Ident, LitStr, Meta, PatType, ReceiverKind, ReturnType, Safety, Signature, Type, parse_quote};

use crate::duration;
use crate::entity::own_type;
use crate::errors::Errors;
use crate::names::{self, Kind, kebab_case};
use crate::saga::expand::retry_and_timeouts::{duration as duration_expr, retry_expr};
use crate::saga::expand::uses;
use crate::saga::parameters::typed;
use crate::saga::parse::{Block, Function};
use crate::saga::retry::Retry;
use crate::saga::types::{
    behind_reference, is_named, last_segment, mutably_referenced, optional, referenced, strip_groups,
    type_arguments,
};
use crate::settings::Settings;

const EXAMPLE: &str = "#[command(entity = YourEntity)]";

struct Functions {
    /// The span of what `key` returns.
    key: Span,
    authorizes: bool,
    fetch: Option<Fetch>,
    decide: Option<Decide>,
    undo: Option<Undo>,
}

struct Undo {
    name: Ident,
    reversed: Type,
}

struct Fetch {
    returns: Type,
    timeout: Option<Duration>,
    retry: Option<Retry>,
}

struct Decide {
    name: Ident,
    accepted: Type,
    rejected: Type,
    takes_fetched: bool,
    takes_id: bool,
}

/// The user's block without our attributes, with the command or all its mistakes.
pub(crate) fn command(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let block = match (|input: ParseStream<'_>| Block::parse_below("command", input)).parse2(item.clone()) {
        Ok(block) => block,
        Err(error) => {
            let error = error.to_compile_error();
            return quote!(#error #item);
        }
    };
    let uses = uses(block.stripped());
    let mut errors = Errors::default();
    let Some(ident) = own_type(&block, "command", "a command", &mut errors) else {
        return quote!(#errors #block #uses);
    };
    let known = ["entity", "name", "topic", "was"];
    let settings = Settings::read("#[command]", &known, arguments, &mut errors);
    let entity = settings.ty("entity", &mut errors);
    if settings.key("entity").is_none() {
        errors.at(&block.self_ty, format!("`{ident}` has no entity that decides; write `{EXAMPLE}`"));
    }
    let name = settings.text("name", &mut errors);
    let name = names::stored(Kind::Saga, name.as_ref(), &ident, kebab_case, &mut errors);
    let was: Vec<_> =
        names::former(Kind::Saga, &settings, &name, &mut errors).iter().map(LitStr::value).collect();
    let topic = topic(&settings, &ident, &mut errors);
    let functions = functions(&block, &mut errors);
    let ty = &block.self_ty;
    let message = functions.decide.as_ref().map(|Decide { accepted, rejected, .. }| {
        quote! {
            impl ::scoop::Message for #ty {
                const TOPIC: &'static str = #topic;
                type Reply = ::scoop::Decision<#accepted, #rejected>;
            }
        }
    });
    let command = match (&functions.decide, entity) {
        (Some(decide), Some(entity)) if errors.is_empty() => {
            Some(implementation(ty, &Names { name, was }, &entity, &functions, decide))
        }
        _ => None,
    };
    quote!(#errors #block #uses #message #command)
}

/// The topic in the setting, or else the one that follows from `ident`.
fn topic(settings: &Settings, ident: &Ident, errors: &mut Errors) -> String {
    let written = settings.text("topic", errors);
    let topic = written.as_ref().map_or_else(|| kebab_case(&ident.to_string()), LitStr::value);
    match (Kind::Topic.refuses(&topic), written) {
        (Some(why), Some(written)) => errors.at(written, why),
        (Some(why), None) => errors.at(ident, format!("{why}; write one: `topic = \"..\"`")),
        (None, _) => {}
    }
    topic
}

struct Names {
    name: String,
    was: Vec<String>,
}

fn implementation(
    ty: &Type,
    names: &Names,
    entity: &Type,
    functions: &Functions,
    decide: &Decide,
) -> TokenStream {
    let Names { name, was } = names;
    let Functions { key: key_span, authorizes, fetch, undo, .. } = functions;
    let Decide { name: decide, accepted, rejected, takes_fetched, takes_id } = decide;
    let reversed = undo.as_ref().map_or(accepted, |undo| &undo.reversed);
    let fetches = fetch.is_some();
    let unit: Type = parse_quote!(());
    let fetched = fetch.as_ref().map_or(&unit, |fetch| &fetch.returns);
    let fetch_step = fetch.as_ref().map(|_| quote!(::scoop::__private::StepDefinition::new("fetch"),));
    let needing = takes_fetched.then(|| quote!(.needing(&["fetch"])));
    let compensated = undo.as_ref().map(|_| quote!(.compensated()));
    let former_names =
        (!was.is_empty()).then(|| quote!(const FORMER_NAMES: &'static [&'static str] = &[#(#was),*];));
    let fetch = fetch.as_ref().map(fetch_functions);
    let authorize = authorizes.then(|| {
        quote! {
            const AUTHORIZES: bool = true;

            fn authorize(&self, caller: &::scoop::Caller) -> ::scoop::Result<()> {
                Self::authorize(self, caller)
            }
        }
    });
    let takes = takes_fetched.then(|| quote!(, fetched));
    let takes_id = takes_id.then(|| quote!(, id));
    let undo = undo.as_ref().map(|Undo { name, .. }| {
        let call = quote_spanned!(name.span()=> Self::#name(self, entity, event));
        quote! {
            fn undo(&self, entity: &#entity, event: &#accepted) -> ::core::option::Option<#reversed> {
                #call
            }
        }
    });
    // The compiler reports types that do not fit at these functions of the user.
    let decided = quote_spanned!(decide.span()=> Self::#decide(self, entity #takes #takes_id));
    let key_of = quote_spanned!(*key_span=> Self::key(self));
    let key = quote_spanned!(Span::call_site()=> <#entity as ::scoop::Entity>::Key);
    quote! {
        impl ::scoop::Command for #ty {
            type Entity = #entity;
            type Accepted = #accepted;
            type Rejected = #rejected;
            type Reversed = #reversed;
            type Fetched = #fetched;

            const DEFINITION: ::scoop::Definition = ::scoop::Definition::new(
                #name,
                <Self as ::scoop::Message>::TOPIC,
                const {
                    &[
                        #fetch_step
                        ::scoop::__private::StepDefinition::new("decide")
                            .of_kind(::scoop::__private::StepKind::Decide)
                            #compensated
                            #needing,
                    ]
                },
            );
            const FETCHES: bool = #fetches;
            #former_names

            fn key(&self) -> #key {
                #key_of
            }

            #authorize

            #fetch

            #[allow(unused_variables)]
            fn decide(
                &self,
                entity: &#entity,
                fetched: &#fetched,
                id: ::scoop::__private::Uuid,
            ) -> ::scoop::Decision<#accepted, #rejected> {
                #decided
            }

            #undo
        }
        ::scoop::__private::inventory::submit! {
            ::scoop::__private::Registration::new::<::scoop::Decider<#ty>>(::core::env!("CARGO_PKG_NAME"), || {
                ::scoop::__private::erase(::core::option::Option::Some(
                    <::scoop::Decider<#ty> as ::core::default::Default>::default(),
                ))
            })
        }
    }
}

/// The functions of the trait that are about the step before the decision.
fn fetch_functions(fetch: &Fetch) -> TokenStream {
    let Fetch { returns, timeout, retry } = fetch;
    let timeout = timeout.map(|timeout| {
        let timeout = duration_expr(timeout);
        quote! {
            fn fetch_timeout() -> ::core::option::Option<::core::time::Duration> {
                ::core::option::Option::Some(#timeout)
            }
        }
    });
    let retry = retry.as_ref().map(|retry| {
        let retry = retry_expr(retry);
        quote! {
            fn fetch_retry() -> ::core::option::Option<::scoop::__private::Retry> {
                ::core::option::Option::Some(#retry)
            }
        }
    });
    quote! {
        fn fetch<'a>(
            &'a self,
            scope: &'a mut ::scoop::Scope<'_>,
        ) -> ::scoop::__private::Boxed<'a, ::scoop::__private::StepEnd> {
            ::scoop::__private::output(::scoop::__private::stored::<#returns>(), Self::fetch(self, scope))
        }
        #timeout
        #retry
    }
}

/// Finds the functions by their names, and checks their forms.
fn functions(block: &Block, errors: &mut Errors) -> Functions {
    let find = |name: &str| block.functions().find(|function| function.sig.ident == name);
    for function in block.functions().filter(|function| function.sig.ident != "fetch") {
        for step in &function.steps {
            errors.at(step, "a command has one step of its own, `fetch`; remove this");
        }
    }
    let key = match find("key") {
        Some(function) => key(&function.sig, errors),
        None => {
            missing(block, "key", "fn key(&self) -> YourKey", errors);
            Span::call_site()
        }
    };
    let authorizes = match find("authorize") {
        Some(function) => {
            authorize(&function.sig, errors);
            true
        }
        None => false,
    };
    let fetch = find("fetch").and_then(|function| fetch(function, block, errors));
    let fetches = find("fetch").is_some();
    let decide = match find("decide") {
        Some(function) => decide(&function.sig, fetches, errors),
        None => {
            missing(
                block,
                "decide",
                "fn decide(&self, entity: &YourEntity) -> Decision<YourEvent, ()>",
                errors,
            );
            None
        }
    };
    let is_unit = |ty: &Type| matches!(ty, Type::Tuple(unit) if unit.elems.is_empty());
    if let (Some(fetch), Some(Decide { name, takes_fetched: false, .. })) = (&fetch, &decide)
        && !is_unit(&fetch.returns)
    {
        let write = "fn decide(&self, entity: &YourEntity, fetched: &YourValue) -> Decision<YourEvent, ()>";
        errors.at(name, format!("`decide` does not take what `fetch` returns; write `{write}`, or let `fetch` return `Result<()>`"));
    }
    let undo = find("undo").and_then(|function| undo(&function.sig, errors));
    Functions { key, authorizes, fetch, decide, undo }
}

fn missing(block: &Block, name: &str, write: &str, errors: &mut Errors) {
    errors.at(&block.self_ty, format!("this command has no function `{name}`; write `{write}`"));
}

/// The rules for all functions that the command calls.
fn common(sig: &Signature, write: &str, errors: &mut Errors) {
    let name = &sig.ident;
    match sig.receiver() {
        Some(receiver) if !matches!(receiver.kind, ReceiverKind::Reference(_, _, None)) => {
            errors.at(receiver, format!("`{name}` does not change the command; write `{write}`"));
        }
        Some(_) => {}
        None => errors.at(name, format!("`{name}` must take `&self`; write `{write}`")),
    }
    if let Safety::Unsafe(unsafety) = &sig.safety {
        errors.at(unsafety, format!("the command calls `{name}`, so it cannot be `unsafe`"));
    }
    if !sig.generics.params.is_empty() {
        errors
            .at(&sig.generics, format!("`{name}` cannot be generic: only the command calls it; remove this"));
    }
}

/// The rules for a function of values, which runs while the entity is locked.
fn pure(sig: &Signature, write: &str, errors: &mut Errors) {
    common(sig, write, errors);
    let name = &sig.ident;
    if let Some(asyncness) = &sig.asyncness {
        let (why, hint) = match &*name.to_string() {
            "key" => ("follows from the command", "remove this"),
            "authorize" => (
                "depends on nothing but the command and its caller",
                "have the sender put what it needs into the `Caller`",
            ),
            _ => ("runs while the entity is locked", "get what it needs in `fetch`"),
        };
        errors.at(asyncness, format!("`{name}` {why}, so it cannot be `async`; {hint}"));
    }
    for scope in typed(sig).filter(|it| is_named(behind_reference(&it.ty), "Scope")) {
        let hint = match name == "authorize" {
            true => "have the sender put what it needs into the `Caller`",
            false => "get what it needs in `fetch`",
        };
        errors.at(scope, format!("`{name}` has no scope: it depends on nothing but values; {hint}"));
    }
}

fn values(sig: &Signature) -> Vec<&PatType> {
    typed(sig).filter(|it| !is_named(behind_reference(&it.ty), "Scope")).collect()
}

/// Checks the number of these parameters, and that they are references.
fn parameters(sig: &Signature, parameters: &[&PatType], counts: &[usize], write: &str, errors: &mut Errors) {
    for parameter in parameters {
        if referenced(&parameter.ty).is_none() {
            errors.at(&parameter.ty, format!("values are passed by reference; write `{write}`"));
        }
    }
    if !counts.contains(&parameters.len()) {
        let last = parameters.last().filter(|_| counts.iter().all(|count| *count < parameters.len()));
        let at: &dyn ToTokens = last.map_or(&sig.ident, |last| *last);
        errors.at(at, format!("`{}` takes other parameters; write `{write}`", sig.ident));
    }
}

/// Checks the function, and returns the span of its return type.
fn key(sig: &Signature, errors: &mut Errors) -> Span {
    let write = "fn key(&self) -> YourKey";
    pure(sig, write, errors);
    parameters(sig, &values(sig), &[0], write, errors);
    match &sig.output {
        ReturnType::Type(_, ty) => ty.span(),
        ReturnType::Default => {
            errors.at(&sig.ident, format!("`key` returns the key of the entity; write `{write}`"));
            sig.ident.span()
        }
    }
}

fn authorize(sig: &Signature, errors: &mut Errors) {
    let write = "fn authorize(&self, caller: &Caller) -> Result<()>";
    pure(sig, write, errors);
    let given = values(sig);
    parameters(sig, &given, &[1], write, errors);
    if let Some(other) = given.first().filter(|it| !is_named(behind_reference(&it.ty), "Caller")) {
        errors.at(&other.ty, format!("`authorize` takes the caller; write `{write}`"));
    }
    let returned = match &sig.output {
        ReturnType::Type(_, ty) => Some(&**ty),
        ReturnType::Default => None,
    };
    let result = returned.and_then(last_segment).filter(|segment| segment.ident == "Result");
    let mut types = result.into_iter().flat_map(type_arguments);
    let is_unit = matches!(types.next().map(strip_groups), Some(Type::Tuple(unit)) if unit.elems.is_empty());
    if !is_unit {
        let at: &dyn ToTokens = returned.map_or(&sig.ident, |ty| ty as &dyn ToTokens);
        errors.at(
            at,
            format!(
                "`authorize` returns nothing, or the reason for which the caller is refused; write `{write}`"
            ),
        );
    }
}

fn fetch(function: &Function, block: &Block, errors: &mut Errors) -> Option<Fetch> {
    let write = "async fn fetch(&self, scope: &mut Scope<'_>) -> Result<YourValue>";
    let sig = &function.sig;
    common(sig, write, errors);
    if sig.asyncness.is_none() {
        errors.at(sig.fn_token, format!("`fetch` must be `async`; write `{write}`"));
    }
    let mut parameters = typed(sig);
    let scope =
        parameters.next().filter(|it| mutably_referenced(&it.ty).is_some_and(|ty| is_named(ty, "Scope")));
    match (scope, parameters.next()) {
        (Some(_), None) => {}
        (Some(_), Some(other)) => errors.at(other, format!("`fetch` takes the scope alone; write `{write}`")),
        (None, _) => errors.at(&sig.ident, format!("`fetch` takes the scope; write `{write}`")),
    }
    for repeated in function.steps.iter().skip(1) {
        errors.at(repeated, "`#[step]` stands here twice; remove one");
    }
    let settings = match function.steps.first().map(|step| &step.meta) {
        Some(Meta::List(list)) => {
            Settings::read("#[step] of `fetch`", &["timeout", "retry"], list.tokens.clone(), errors)
        }
        _ => Settings::default(),
    };
    let timeout = settings.text("timeout", errors);
    let timeout = timeout.and_then(|timeout| errors.record(duration::parse(&timeout)));
    let retry = Retry::read("retry", &settings, block, errors);
    let returns = match &sig.output {
        ReturnType::Type(_, ty) => {
            last_segment(ty).filter(|it| it.ident == "Result").and_then(|it| type_arguments(it).next())
        }
        ReturnType::Default => None,
    };
    if returns.is_none() {
        errors.at(&sig.ident, format!("`fetch` must return a `Result`; write `{write}`"));
    }
    Some(Fetch { returns: strip_groups(returns?).clone(), timeout, retry })
}

fn decide(sig: &Signature, fetches: bool, errors: &mut Errors) -> Option<Decide> {
    let write = match fetches {
        true => "fn decide(&self, entity: &YourEntity, fetched: &YourValue) -> Decision<YourEvent, ()>",
        false => "fn decide(&self, entity: &YourEntity) -> Decision<YourEvent, ()>",
    };
    pure(sig, write, errors);
    let mut given = values(sig);
    let id = given.pop_if(|last| is_named(&last.ty, "Uuid"));
    let counts: &[usize] = if fetches { &[1, 2] } else { &[1] };
    match given.iter().rfind(|it| is_named(behind_reference(&it.ty), "Uuid")) {
        Some(id) if !counts.contains(&given.len()) => {
            errors.at(id, "the id of the command comes last, and by value; write `id: Uuid`");
        }
        _ => parameters(sig, &given, counts, write, errors),
    }
    let returned = match &sig.output {
        ReturnType::Type(_, ty) => Some(&**ty),
        ReturnType::Default => None,
    };
    let decision = returned.and_then(last_segment).filter(|segment| segment.ident == "Decision");
    let mut types = decision.into_iter().flat_map(type_arguments);
    let Some(accepted) = types.next().cloned() else {
        let at: &dyn ToTokens = returned.map_or(&sig.ident, |ty| ty as &dyn ToTokens);
        errors.at(at, format!("`decide` returns a `Decision`; write `{write}`"));
        return None;
    };
    let rejected = types.next().cloned().unwrap_or_else(|| parse_quote!(()));
    let (takes_fetched, takes_id) = (given.len() > 1, id.is_some());
    Some(Decide { name: sig.ident.clone(), accepted, rejected, takes_fetched, takes_id })
}

fn undo(sig: &Signature, errors: &mut Errors) -> Option<Undo> {
    let write = "fn undo(&self, entity: &YourEntity, event: &YourEvent) -> Option<OtherEvent>";
    pure(sig, write, errors);
    parameters(sig, &values(sig), &[2], write, errors);
    let returned = match &sig.output {
        ReturnType::Type(_, ty) => optional(ty),
        ReturnType::Default => None,
    };
    if returned.is_none() {
        errors.at(
            &sig.ident,
            format!("`undo` returns the event that undoes another, if one is needed; write `{write}`"),
        );
    }
    Some(Undo { name: sig.ident.clone(), reversed: returned?.clone() })
}
