//! Facts about a type that its tokens show.

use quote::ToTokens;
use syn::{GenericArgument, PathArguments, PathSegment, Type};

/// The type without the delimiters that do not change it.
pub(crate) fn strip_groups(ty: &Type) -> &Type {
    match ty {
        Type::Group(group) => strip_groups(&group.elem),
        Type::Paren(paren) => strip_groups(&paren.elem),
        ty => ty,
    }
}

/// The last segment of a path, such as `Result<()>` of `scoop::Result<()>`.
pub(crate) fn last_segment(ty: &Type) -> Option<&PathSegment> {
    match strip_groups(ty) {
        Type::Path(path) => path.path.segments.last(),
        _ => None,
    }
}

pub(crate) fn is_named(ty: &Type, name: &str) -> bool {
    last_segment(ty).is_some_and(|segment| segment.ident == name)
}

/// Whether both paths end alike. If they mean different types nevertheless, the compiler reports that.
pub(crate) fn ends_alike(one: &Type, other: &Type) -> bool {
    match (last_segment(one), last_segment(other)) {
        (Some(one), Some(other)) => one == other,
        _ => strip_groups(one) == strip_groups(other),
    }
}

pub(crate) fn type_arguments(segment: &PathSegment) -> impl Iterator<Item = &Type> {
    let arguments = match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(&arguments.args),
        _ => None,
    };
    arguments.into_iter().flatten().filter_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    })
}

/// `T` of `Option<T>`.
pub(crate) fn optional(ty: &Type) -> Option<&Type> {
    type_arguments(last_segment(ty).filter(|segment| segment.ident == "Option")?).next()
}

/// `T` of `&T`.
pub(crate) fn referenced(ty: &Type) -> Option<&Type> {
    match strip_groups(ty) {
        Type::Reference(it) if it.mutability.is_none() => Some(&it.elem),
        _ => None,
    }
}

/// `T` of `&mut T`.
pub(crate) fn mutably_referenced(ty: &Type) -> Option<&Type> {
    match strip_groups(ty) {
        Type::Reference(it) if it.mutability.is_some() => Some(&it.elem),
        _ => None,
    }
}

/// The `T` of any reference to `T`, or of `T` itself.
pub(crate) fn behind_reference(ty: &Type) -> &Type {
    match strip_groups(ty) {
        Type::Reference(reference) => strip_groups(&reference.elem),
        ty => ty,
    }
}

pub(crate) fn text(ty: &Type) -> String {
    let mut text = ty.to_token_stream().to_string();
    for (spaced, tight) in
        [(" <", "<"), ("< ", "<"), (" >", ">"), (" ::", "::"), (":: ", "::"), (" ,", ","), ("& ", "&")]
    {
        text = text.replace(spaced, tight);
    }
    text
}
