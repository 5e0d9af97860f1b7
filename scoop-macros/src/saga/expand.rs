//! Turns a checked saga into tokens. Nothing is decided here, and all code longer than a call is a function in
//! the module `private` of `scoop-runtime`.

mod retry_and_timeouts;
mod steps;

use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Ident, Path, Type};

use self::retry_and_timeouts::{durations, retry};
use self::steps::{definition, step_enum, step_path};
use super::model::{Call, Outline, ReturnKind, Saga, Step, Value};
use super::schedule;

/// Everything the saga adds to the user's block.
pub(super) fn saga(outline: &Outline, saga: &Saga) -> TokenStream {
    let (step_enum, trait_impl) = (step_enum(outline), trait_impl(outline, saga));
    let ty = &outline.ty;
    quote! {
        #step_enum
        #trait_impl
        ::scoop::__private::inventory::submit! {
            ::scoop::__private::Registration::new::<#ty>(|| {
                use ::scoop::__private::NotDefault as _;
                ::scoop::__private::erase(::scoop::__private::Probe::<#ty>::new().instance())
            })
        }
    }
}

/// A use of the removed attributes, so that the user's imports of them are not unused.
pub(super) fn uses<'a>(attributes: impl Iterator<Item = &'a Path>) -> TokenStream {
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
    quote!(#step_enum #trait_impl)
}

fn trait_impl(outline: &Outline, saga: &Saga) -> TokenStream {
    let (ty, step_enum) = (&outline.ty, &step_path(outline));
    let Saga { name, was, message, schedule, steps } = saga;
    let former_names =
        (!was.is_empty()).then(|| quote!(const FORMER_NAMES: &'static [&'static str] = &[#(#was),*];));
    let topic = match schedule {
        Some((_, topic)) => quote!(#topic),
        None => quote!(::scoop::__private::topic::<Self>()),
    };
    let unscheduled = match schedule {
        Some(_) => None,
        None => schedule::launched_by_hand(message),
    };
    let schedule = schedule.as_ref().map(|(schedule, _)| schedule::constant(schedule, message));
    let definitions = steps.iter().map(definition);
    let timeout = durations("timeout", step_enum, steps, |step| step.timeout);
    let retry = retry(step_enum, steps);
    let sleep = durations("sleep", step_enum, steps, |step| step.sleep);
    let value_shapes = value_shapes(steps);
    let invoke = invoke(step_enum, message, &invocations(step_enum, steps));
    let due = due(step_enum, message, steps);
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
            #schedule
            #timeout
            #retry
            #sleep
            #value_shapes
            #invoke
            #due
            #finally
            #compensate
            #on_child_failure
        }
        #unscheduled
    }
}

fn value_shapes(steps: &[Step]) -> Option<TokenStream> {
    let shapes = steps.iter().filter_map(|step| match &step.invoke.end {
        ReturnKind::JumpWith(ty) | ReturnKind::Output(ty) => {
            let name = &step.name;
            Some(quote!(shape_of(stored::<#ty>(), #name)))
        }
        ReturnKind::Done | ReturnKind::Jump => None,
    });
    let shapes: Vec<_> = shapes.collect();
    (!shapes.is_empty()).then(|| {
        quote! {
            fn value_shapes() -> ::std::vec::Vec<::std::string::String> {
                use ::scoop::__private::{shape_of, stored};
                ::std::vec![#(#shapes),*]
            }
        }
    })
}

fn invoke(step_enum: &Path, message: &Type, body: &TokenStream) -> TokenStream {
    quote! {
        async fn invoke(
            &self,
            step: #step_enum,
            scope: &mut ::scoop::Scope<'_>,
            message: &#message,
        ) -> ::scoop::Result<::scoop::__private::StepEnd> {
            #body
        }
    }
}

fn invocations(step_enum: &Path, steps: &[Step]) -> TokenStream {
    let mut names = BTreeSet::new();
    let arms = Arms::of(step_enum, steps, |step| {
        let call = &step.invoke;
        let (values, called) = called(call, None, &mut names);
        let (name, end) = match &call.end {
            ReturnKind::Done => ("done", quote!(done(#called))),
            ReturnKind::Jump => ("jump", quote!(jump::<#step_enum>(#called))),
            ReturnKind::JumpWith(ty) => {
                ("jump_with", quote!(jump_with::<#step_enum, _>(stored::<#ty>(), #called)?))
            }
            ReturnKind::Output(ty) => ("output", quote!(output(stored::<#ty>(), #called)?)),
        };
        names.insert(name);
        names.extend(matches!(call.end, ReturnKind::JumpWith(_) | ReturnKind::Output(_)).then_some("stored"));
        Some(block(values, end))
    });
    let (import, Arms { arms, .. }) = (import(&names), arms);
    quote! {
        #import
        ::core::result::Result::Ok(match step { #(#arms)* })
    }
}

fn due(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let times = Arms::of(step_enum, steps, |step| {
        let (values, call) = called(step.at.as_ref()?, None, &mut names);
        Some(block(values, call))
    });
    let (import, times) = (import(&names), times.or_else(&quote!(::std::time::SystemTime::UNIX_EPOCH))?);
    Some(quote! {
        async fn due(
            &self,
            step: #step_enum,
            scope: &mut ::scoop::Scope<'_>,
            message: &#message,
        ) -> ::scoop::Result<::std::time::SystemTime> {
            #import
            ::core::result::Result::Ok(match step { #times })
        }
    })
}

fn finally(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let cleanups = Arms::of(step_enum, steps, |step| {
        let (values, call) = called(step.finally.as_ref()?, None, &mut names);
        Some(block(values, call))
    });
    let (import, cleanups) = (import(&names), cleanups.or_else(&quote!({}))?);
    Some(quote! {
        async fn finally(
            &self,
            step: #step_enum,
            scope: &mut ::scoop::Scope<'_>,
            message: &#message,
        ) -> ::scoop::Result<()> {
            #import
            match step { #cleanups }
            ::core::result::Result::Ok(())
        }
    })
}

fn compensate(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let compensations = Arms::of(step_enum, steps, |step| {
        let (values, call) = called(step.rollback.as_ref()?, Some(quote!(failure)), &mut names);
        Some(block(values, call))
    });
    let (import, compensations) = (import(&names), compensations.or_else(&quote!({}))?);
    Some(quote! {
        async fn compensate(
            &self,
            step: #step_enum,
            scope: &mut ::scoop::Scope<'_>,
            message: &#message,
            failure: &::scoop::Failure,
        ) -> ::scoop::Result<()> {
            #import
            match step { #compensations }
            ::core::result::Result::Ok(())
        }
    })
}

fn on_child_failure(step_enum: &Path, message: &Type, steps: &[Step]) -> Option<TokenStream> {
    let mut names = BTreeSet::new();
    let handlers = Arms::of(step_enum, steps, |step| {
        let handler = step.on_child_failure.as_ref()?;
        let (values, call) = called(handler, Some(quote!(failure)), &mut names);
        let (name, end) = match &handler.end {
            ReturnKind::Jump => ("handled_by", quote!(handled_by::<#step_enum>(#call))),
            ReturnKind::Done | ReturnKind::JumpWith(_) | ReturnKind::Output(_) => {
                ("handled", quote!(handled(#call)))
            }
        };
        names.insert(name);
        Some(block(values, end))
    });
    names.extend(handlers.missing.then_some("unhandled"));
    let (import, handlers) = (import(&names), handlers.or_else(&quote!(unhandled(failure)?))?);
    Some(quote! {
        async fn on_child_failure(
            &self,
            step: #step_enum,
            scope: &mut ::scoop::Scope<'_>,
            message: &#message,
            failure: &::scoop::Failure,
        ) -> ::scoop::Result<::core::option::Option<::scoop::Next<#step_enum>>> {
            #import
            ::core::result::Result::Ok(match step { #handlers })
        }
    })
}

/// The values that a call takes, and the call. `names` collects the functions they call. The compiler reports
/// errors about the future at the user's function.
fn called(
    call: &Call,
    failure: Option<TokenStream>,
    names: &mut BTreeSet<&'static str>,
) -> (TokenStream, TokenStream) {
    let function = &call.function;
    let (mut values, mut arguments) = (TokenStream::new(), Vec::new());
    for Value { ty, optional, producer, step } in &call.values {
        let producer = producer.unraw();
        if *optional {
            let variable = format_ident!("any_from_{producer}", span = Span::call_site());
            values.extend(quote!(let #variable = value_if_any(stored::<#ty>(), scope, #step)?;));
            arguments.push(quote!(#variable.as_ref()));
            names.insert("value_if_any");
        } else {
            let variable = format_ident!("from_{producer}", span = Span::call_site());
            values.extend(quote!(let #variable = value_of(stored::<#ty>(), scope, #step)?;));
            arguments.push(quote!(&#variable));
            names.insert("value_of");
        }
    }
    names.extend((!values.is_empty()).then_some("stored"));
    arguments.extend(failure);
    names.insert("send");
    let span = Span::call_site().located_at(function.span());
    let called = quote_spanned! {span=>
        send(self.#function(scope, message #(, #arguments)*)).await?
    };
    (values, called)
}

fn block(values: TokenStream, end: TokenStream) -> TokenStream {
    if values.is_empty() { end } else { quote!({ #values #end }) }
}

/// The import of functions by name. Types are never imported: the user's could be named alike.
fn import(names: &BTreeSet<&'static str>) -> TokenStream {
    let names = names.iter().map(|name| Ident::new(name, Span::call_site()));
    quote!(use ::scoop::__private::{#(#names),*};)
}

/// The match arms of those steps that have one.
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
}
