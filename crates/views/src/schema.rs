//! The JSON schema of the result document, made from its types, for programs in other languages;
//! it decides no field.

use crate::Document;
use schemars::{Schema, generate::SchemaSettings};

/// Version of the result document, `MAJOR.MINOR`. Within a major version fields are only added:
/// each addition is the next minor version. A field that goes, or that changes its type or its
/// meaning, is the next major version.
pub const RESULT_VERSION: &str = "1.3";

/// The schema of a document as it is written, in JSON Schema 2020-12. Its `$id` ends with the
/// version of the document.
#[must_use]
pub fn result_schema() -> Schema {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<Document>();
    schema.insert("$id".to_owned(), format!("urn:tandem:result:{RESULT_VERSION}").into());
    schema.insert("title".to_owned(), format!("Tandem's result document {RESULT_VERSION}").into());
    schema
}
