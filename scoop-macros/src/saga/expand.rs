//! Turns a checked saga into tokens. Nothing is decided here, and all code longer than a call is a function in
//! the module `private` of `scoop-runtime`.

mod messages;
pub(crate) mod retry_and_timeouts;
mod steps;

use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Ident, Path, Type};

use self::messages::{join_constant, messages};
use self::retry_and_timeouts::{durations, retry};
use self::steps::{definition, step_enum, step_path};
use super::limits::{Key, Limit, Limits, Rate};
use super::model::{AwaitsCall, Call, Delivery, Outline, Pin, ReturnKind, Saga, Step, Value};
use super::schedule;
use crate::names;

pub(super) fn saga(outline: &Outline, saga: &Saga) -> TokenStream {
    let (step_enum, trait_impl) = (step_enum(outline), trait_impl(outline, saga));
    let (ty, messages) = (&outline.ty, messages(outline));
    quote! {
        #step_enum
        #messages
        #trait_impl
        ::scoop::__private::inventory::submit! {
            ::scoop::__private::Registration::new::<#ty>(::core::env!("CARGO_PKG_NAME"), || {
                use ::scoop::__private::NotDefault as _;
                ::scoop::__private::erase(::scoop::__private::Probe::<#ty>::new().instance())
            })
        }
    }
}

/// A use of the removed attributes, so that the user's imports of them are not unused.
pub(crate) fn uses<'a>(attributes: impl Iterator<Item = &'a Path>) -> TokenStream {
    quote! {
        const _: () = {
            #(#[allow(unused_imports)] use #attributes as _;)*
        };
    }
}

/// The items that other user code relies on, for a saga with mistakes. It cannot run.
pub(super) fn stub(outline: &Outline) -> TokenStream {
    let Outline { ty, message, .. } = outline;
    let (step_enum, steps) = (step_enum(outline), step_path(outline));
    let trait_impl = message.as_ref().filter(|_| !outline.variants.is_empty()).map(|message| {
        let body = quote!(::core::unreachable!());
        let invoke = invoke(&steps, message, &body);
        quote! {
            impl ::scoop::Saga for #ty {
                type Message = #message;
                type Step = #steps;
                const DEFINITION: ::scoop::Definition = ::scoop::Definition::new("", "", &[]);
                #invoke
            }
        }
    });
    let messages = messages(outline);
    quote!(#step_enum #messages #trait_impl)
}

fn trait_impl(outline: &Outline, saga: &Saga) -> TokenStream {
    let (ty, step_enum) = (&outline.ty, &step_path(outline));
    let Saga { name, was, message, filter, schedule, limits, wait, pin, steps } = saga;
    let (limits, limit_key) = (constant(limits), limit_key(message, limits));
    let pin = pin.map(|pin| {
        let pin = match pin {
            Pin::WhileLiving => quote!(WhileLiving),
            Pin::Always => quote!(Always),
        };
        quote!(const PIN: ::scoop::__private::Pin = ::scoop::__private::Pin::#pin;)
    });
    let former_names =
        (!was.is_empty()).then(|| quote!(const FORMER_NAMES: &'static [&'static str] = &[#(#was),*];));
    let topic = match (schedule, filter) {
        (Some((_, topic)), _) => quote!(#topic),
        (None, Some(filter)) => filter.topic(message),
        (None, None) => quote!(::scoop::__private::topic::<Self>()),
    };
    let unscheduled = match schedule {
        Some(_) => TokenStream::new(),
        None => {
            let several = outline
                .messages
                .iter()
                .flat_map(|several| several.members.iter().map(|(_, message)| message));
            several.chain([message]).filter_map(schedule::launched_by_hand).collect()
        }
    };
    let schedule = schedule.as_ref().map(|(schedule, _)| schedule::constant(schedule, message));
    let join = outline.messages.as_ref().and_then(join_constant);
    let definitions = steps.iter().map(definition);
    let timeout = durations("timeout", step_enum, steps, |step| step.timeout);
    let retry = retry(step_enum, steps);
    let sleep = durations("sleep", step_enum, steps, |step| step.sleep);
    let stored_types = stored_types(steps);
    let invoke = invoke(step_enum, message, &invocations(step_enum, steps));
    let due = due(step_enum, message, steps);
    let awaits = awaits(step_enum, message, steps);
    let launches = launches(step_enum, steps);
    let within = durations("within", step_enum, steps, |step| step.awaits.as_ref()?.within);
    let finally = finally(step_enum, message, steps);
    let compensate = compensate(step_enum, message, steps);
    let on_child_failure = on_child_failure(step_enum, message, steps);
    quote! {
        impl ::scoop::Saga for #ty {
            type Message = #message;
            type Step = #step_enum;

            const DEFINITION: ::scoop::Definition = ::scoop::Definition::new(
                #name,
                #topic,
                const { &[#(#definitions),*] },
            );

            #former_names
            #join
            #limits
            #schedule
            #timeout
            #retry
            #sleep
            #wait
            #pin
            #launches
            #stored_types
            #invoke
            #due
            #awaits
            #within
            #limit_key
            #finally
            #compensate
            #on_child_failure
        }
        #unscheduled
    }
}

fn constant(limits: &Limits) -> Option<TokenStream> {
    let name = |by: &Key| by.name().unraw().to_string();
    let concurrency = limits.concurrency.as_ref().map(|Limit { most, by }| match by.as_ref().map(name) {
        None => quote!(.concurrency(#most)),
        Some(by) => quote!(.concurrency_by(#most, #by)),
    });
    let serial = limits.serial.as_ref().map(|by| match by.as_ref().map(name) {
        None => quote!(.serial()),
        Some(by) => quote!(.serial_by(#by)),
    });
    let rate = limits.rate.as_ref().map(|Limit { most: Rate { most, period_ms }, by }| {
        match by.as_ref().map(name) {
            None => quote!(.rate(#most, #period_ms)),
            Some(by) => quote!(.rate_by(#most, #period_ms, #by)),
        }
    });
    let queue = limits.queue.map(|most| quote!(.queue(#most)));
    let all: TokenStream = [concurrency, serial, rate, queue].into_iter().flatten().collect();
    (!all.is_empty()).then(|| {
        quote! {
            const LIMITS: ::scoop::__private::Limits = ::scoop::__private::Limits::NONE #all;
        }
    })
}

fn limit_key(message: &Type, limits: &Limits) -> Option<TokenStream> {
    let by = limits.by()?;
    let span = Span::call_site().located_at(by.name().span());
    let key = match by {
        Key::Field(field) => quote_spanned!(span=> &message.#field),
        Key::Function(function) => quote_spanned!(span=> &self.#function(message)),
    };
    let text = quote_spanned!(span=> ::scoop::__private::key_text(#key));
    Some(quote! {
        fn limit_key(&self, message: &#message) -> ::core::option::Option<::std::string::String> {
            ::core::option::Option::Some(#text)
        }
    })
}

/// The function that returns the topics of the declared launches.
fn launches(step_enum: &Path, steps: &[Step]) -> Option<TokenStream> {
    let topics = Arms::of(step_enum, steps, |step| {
        // The compiler reports a type that is no message where it is written.
        let topics = step.launches.as_ref()?.iter().map(|ty| {
            let span = Span::call_site().located_at(ty.span());
            quote_spanned!(span=> launched::<#ty>())
        });
        Some(quote!(::core::option::Option::Some(const { &[#(#topics),*] })))
    });
    let topics = topics.or_else(&quote!(::core::option::Option::None))?;
    Some(quote! {
        fn launches(step: #step_enum) -> ::core::option::Option<&'static [&'static str]> {
            #[allow(unused_imports)]
            use ::scoop::__private::launched;
            match step { #topics }
        }
    })
}

fn stored_types(steps: &[Step]) -> Option<TokenStream> {
    let returned = steps.iter().filter_map(|step| match &step.invoke.end {
        ReturnKind::JumpWith(ty) | ReturnKind::Output(ty) => Some((&**ty, step.name.clone())),
        ReturnKind::Unit | ReturnKind::Jump | ReturnKind::AsNew => None,
    });
    let awaited = steps.iter().filter_map(|step| {
        let awaits = step.awaits.as_ref()?;
        Some((&awaits.ty, format!("{}{}", step.name, names::AWAITING)))
    });
    let types = returned.chain(awaited).map(|(ty, name)| quote!(shape_of(stored::<#ty>(), #name)));
    let types: Vec<_> = types.collect();
    (!types.is_empty()).then(|| {
        quote! {
            fn stored_types() -> ::std::vec::Vec<::scoop::__private::StoredType> {
                use ::scoop::__private::{shape_of, stored};
                ::std::vec![#(#types),*]
            }
        }
    })
}

fn invoke(step_enum: &Path, message: &Type, body: &TokenStream) -> TokenStream {
    quote! {
        fn invoke<'a>(
            &'a self,
            step: #step_enum,
            scope: &'a mut ::scoop::Scope<'_>,
            message: &'a #message,
        ) -> ::scoop::__private::Boxed<'a, ::scoop::__private::StepEnd> {
            #body
        }
    }
}

fn invocations(step_enum: &Path, steps: &[Step]) -> TokenStream {
    let mut names = BTreeSet::new();
    let arms = Arms::of(step_enum, steps, |step| {
        let helper = match &step.invoke.end {
            ReturnKind::Unit => Helper::of("unit"),
            ReturnKind::Jump => Helper::of("jump").with_types(quote!(Self)),
            ReturnKind::JumpWith(ty) => Helper::of("jump_with").with_types(quote!(Self, _)).with_codec(ty),
            ReturnKind::Output(ty) => Helper::of("output").with_codec(ty),
            ReturnKind::AsNew => Helper::of("continue_as_new").with_types(quote!(Self)),
        };
        let begins = step.delivery == Delivery::AtMostOnce;
        Some(called(&step.invoke, None, Helper { begins, ..helper }, &mut names))
    });
    let (import, Arms { arms, .. }) = (import(&names), arms);
    quote! {
        #import
        match step { #(#arms)* }
    }
}

fn due(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let times = Arms::of(step_enum, steps, |step| {
        Some(called(step.at.as_ref()?, None, Helper::of("boxed"), &mut names))
    });
    let (import, times) = times.or_call("always_due", None, names)?;
    Some(quote! {
        fn due<'a>(
            &'a self,
            step: #step_enum,
            scope: &'a mut ::scoop::Scope<'_>,
            message: &'a #message,
        ) -> ::scoop::__private::Boxed<'a, ::std::time::SystemTime> {
            #import
            match step { #times }
        }
    })
}

fn awaits(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let signals = Arms::of(step_enum, steps, |step| {
        let AwaitsCall { ty, by, .. } = step.awaits.as_ref()?;
        // The compiler reports a key that is no text here.
        let key = quote_spanned!(Span::call_site().located_at(by.function.span())=> _);
        Some(called(by, None, Helper::of("awaited").with_types(quote!(#ty, #key)), &mut names))
    });
    let (import, signals) = signals.or_call("awaits_nothing", None, names)?;
    Some(quote! {
        fn awaits<'a>(
            &'a self,
            step: #step_enum,
            scope: &'a mut ::scoop::Scope<'_>,
            message: &'a #message,
        ) -> ::scoop::__private::Boxed<'a, ::core::option::Option<::scoop::__private::Awaited>> {
            #import
            match step { #signals }
        }
    })
}

fn finally(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let cleanups = Arms::of(step_enum, steps, |step| {
        Some(called(step.finally.as_ref()?, None, Helper::of("boxed"), &mut names))
    });
    let (import, cleanups) = cleanups.or_call("nothing", None, names)?;
    Some(quote! {
        fn finally<'a>(
            &'a self,
            step: #step_enum,
            scope: &'a mut ::scoop::Scope<'_>,
            message: &'a #message,
        ) -> ::scoop::__private::Boxed<'a, ()> {
            #import
            match step { #cleanups }
        }
    })
}

fn compensate(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let compensations = Arms::of(step_enum, steps, |step| {
        Some(called(step.rollback.as_ref()?, Some(quote!(failure)), Helper::of("boxed"), &mut names))
    });
    let (import, compensations) = compensations.or_call("nothing", None, names)?;
    Some(quote! {
        fn compensate<'a>(
            &'a self,
            step: #step_enum,
            scope: &'a mut ::scoop::Scope<'_>,
            message: &'a #message,
            failure: &'a ::scoop::Failure,
        ) -> ::scoop::__private::Boxed<'a, ()> {
            #import
            match step { #compensations }
        }
    })
}

fn on_child_failure(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let handlers = Arms::of(step_enum, steps, |step| {
        let handler = step.on_child_failure.as_ref()?;
        let helper = match &handler.end {
            ReturnKind::Jump => Helper::of("handled_by").with_types(quote!(Self)),
            ReturnKind::Unit | ReturnKind::JumpWith(_) | ReturnKind::Output(_) | ReturnKind::AsNew => {
                Helper::of("handled")
            }
        };
        Some(called(handler, Some(quote!(failure)), helper, &mut names))
    });
    let (import, handlers) = handlers.or_call("unhandled", Some(quote!(failure)), names)?;
    Some(quote! {
        fn on_child_failure<'a>(
            &'a self,
            step: #step_enum,
            scope: &'a mut ::scoop::Scope<'_>,
            message: &'a #message,
            failure: &'a ::scoop::Failure,
        ) -> ::scoop::__private::Boxed<'a, ::core::option::Option<::scoop::__private::Next>> {
            #import
            match step { #handlers }
        }
    })
}

/// The function of the module `private` that boxes the future of a user's function.
struct Helper<'a> {
    name: &'static str,
    types: Option<TokenStream>,
    stores: Option<&'a Type>,
    /// Whether the beginning of the function is recorded, after its values are decoded.
    begins: bool,
}

impl<'a> Helper<'a> {
    fn of(name: &'static str) -> Self {
        Helper { name, types: None, stores: None, begins: false }
    }

    fn with_types(self, types: TokenStream) -> Self {
        Helper { types: Some(types), ..self }
    }

    fn with_codec(self, ty: &'a Type) -> Self {
        Helper { stores: Some(ty), ..self }
    }
}

/// The call of a user's function, with the values that it takes. `names` collects the functions that it needs. The
/// compiler reports errors about the future at the user's function.
///
/// Only a call with values, or whose beginning is recorded, is an `async` block: for each of them the compiler has to prove that it is `Send`, which
/// takes long.
fn called(
    call: &Call,
    failure: Option<TokenStream>,
    helper: Helper<'_>,
    names: &mut BTreeSet<&'static str>,
) -> TokenStream {
    let function = &call.function;
    let (mut values, mut arguments) = (TokenStream::new(), Vec::new());
    for Value { ty, optional, producer, step } in &call.values {
        let producer = producer.unraw();
        if *optional {
            let variable = format_ident!("any_from_{producer}", span = Span::call_site());
            values.extend(quote!(let #variable = stored::<#ty>().any_of(scope, #step)?;));
            arguments.push(quote!(#variable.as_ref()));
        } else {
            let variable = format_ident!("from_{producer}", span = Span::call_site());
            values.extend(quote!(let #variable = stored::<#ty>().of(scope, #step)?;));
            arguments.push(quote!(&#variable));
        }
    }
    arguments.extend(failure);
    let Helper { name, types, stores, begins } = helper;
    if begins {
        values.extend(quote!(begins(scope).await?;));
        names.insert("begins");
    }
    names.insert(name);
    names.extend((!values.is_empty()).then_some("boxed"));
    names.extend((!call.values.is_empty() || stores.is_some()).then_some("stored"));
    let span = Span::call_site().located_at(function.span());
    let (name, types) = (Ident::new(name, span), types.map(|types| quote_spanned!(span=> ::<#types>)));
    let codec = stores.map(|ty| quote!(stored::<#ty>(),));
    let called = quote_spanned! {span=>
        #name #types (#codec self.#function(scope, message #(, #arguments)*))
    };
    if values.is_empty() { called } else { quote!(boxed(async move { #values #called.await })) }
}

/// The import of functions by name. Types are never imported: the user's could be named alike.
fn import(names: &BTreeSet<&'static str>) -> TokenStream {
    let names = names.iter().map(|name| Ident::new(name, Span::call_site()));
    quote!(use ::scoop::__private::{#(#names),*};)
}

struct Arms {
    arms: Vec<TokenStream>,
    missing: bool,
}

impl Arms {
    fn of(step_enum: &Path, steps: &[Step], mut arm: impl FnMut(&Step) -> Option<TokenStream>) -> Self {
        let arms = steps.iter().filter_map(|step| {
            let (variant, arm) = (&step.variant, arm(step)?);
            Some(quote!(#step_enum::#variant => #arm,))
        });
        let arms: Vec<_> = arms.collect();
        Arms { missing: arms.len() < steps.len(), arms }
    }

    /// All arms, with this one for the other steps. None if it would be the only one.
    fn or_else(self, otherwise: &TokenStream) -> Option<TokenStream> {
        let Self { arms, missing } = self;
        let otherwise = missing.then(|| quote!(_ => #otherwise,));
        (!arms.is_empty()).then(|| quote!(#(#arms)* #otherwise))
    }

    /// All arms, with a call of this function for the other steps, and the import of all functions.
    fn or_call(
        self,
        otherwise: &'static str,
        argument: Option<TokenStream>,
        mut names: BTreeSet<&'static str>,
    ) -> Option<(TokenStream, TokenStream)> {
        names.extend(self.missing.then_some(otherwise));
        let otherwise = Ident::new(otherwise, Span::call_site());
        let arms = self.or_else(&quote!(#otherwise(#argument)))?;
        Some((import(&names), arms))
    }
}
