//! Time limits, pauses and further attempts.

use std::time::Duration;

use proc_macro2::{Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Ident, Path};

use super::Arms;
use crate::saga::model::{Retry, Step, When};

/// The function of this name that returns a duration of each step, if it has one.
pub(super) fn durations(
    name: &str,
    step_enum: &Path,
    steps: &[Step],
    of: impl Fn(&Step) -> Option<Duration>,
) -> Option<TokenStream> {
    let durations = Arms::of(step_enum, steps, |step| {
        let duration = duration(of(step)?);
        Some(quote!(::core::option::Option::Some(#duration)))
    });
    let durations = durations.or_else(&quote!(::core::option::Option::None))?;
    let name = Ident::new(name, Span::call_site());
    Some(quote! {
        fn #name(step: #step_enum) -> ::core::option::Option<::core::time::Duration> {
            match step { #durations }
        }
    })
}

pub(crate) fn duration(duration: Duration) -> TokenStream {
    let ms = u64::try_from(duration.as_millis()).expect("the attributes take no such durations");
    quote!(::core::time::Duration::from_millis(#ms))
}

/// The function that returns the attempts of each step and of its compensation.
pub(super) fn retry(step_enum: &Path, steps: &[Step]) -> Option<TokenStream> {
    let arms = steps.iter().flat_map(|step| {
        let (variant, retries) = (&step.variant, [&step.retry, &step.rollback_retry]);
        let attempted = [quote!(Step), quote!(Compensation)].into_iter().zip(retries);
        attempted.filter_map(move |(attempted, retry)| {
            let retry = retry_expr(retry.as_ref()?);
            Some(quote! {
                (#step_enum::#variant, ::scoop::__private::RetryTarget::#attempted) =>
                    ::core::option::Option::Some(#retry),
            })
        })
    });
    let arms: Vec<_> = arms.collect();
    let otherwise = (arms.len() < 2 * steps.len()).then(|| quote!(_ => ::core::option::Option::None,));
    // A function of the user may have the name of a parameter, which must not hide it.
    let (step, what) = (Ident::new("step", Span::mixed_site()), Ident::new("what", Span::mixed_site()));
    (!arms.is_empty()).then(|| {
        quote! {
            fn retry(
                #step: #step_enum,
                #what: ::scoop::__private::RetryTarget,
            ) -> ::core::option::Option<::scoop::__private::Retry> {
                match (#step, #what) { #(#arms)* #otherwise }
            }
        }
    })
}

pub(crate) fn retry_expr(retry: &Retry) -> TokenStream {
    let Retry { max, backoff, jitter_percent, when } = retry;
    let max = Literal::u32_unsuffixed(*max);
    let backoff = backoff.map(|(first, longest)| {
        let (first, longest) = (duration(first), duration(longest));
        quote!(.backoff(#first, #longest))
    });
    let jitter = jitter_percent.map(|percent| {
        let percent = Literal::u32_unsuffixed(percent);
        quote!(.jitter_percent(#percent))
    });
    let when = when.as_ref().map(|when| match when {
        When::InBlock(function) => {
            let path = quote_spanned!(function.span()=> Self::#function);
            quote!(.when(#path))
        }
        When::Elsewhere(path) => quote!(.when(#path)),
    });
    quote!(::scoop::__private::Retry::new(#max) #backoff #jitter #when)
}
