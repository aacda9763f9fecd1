//! The reflection service that gRPC defines: descriptors of what is served, for clients that have no `.proto` files.
//!
//! A package that is an alias has files of its own, which are those of the package under other names.

use super::message::Fault;
use super::methods::PACKAGE;
use super::status::{Code, Status};
use crate::wire::proto::messages::DESCRIPTORS;
use bytes::Bytes;
use nigh_engine::quoted::quoted;
use prost::{Message, Oneof};
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};
use std::collections::HashMap;

/// A question.
#[derive(Clone, PartialEq, Message)]
struct ServerReflectionRequest {
    #[prost(string, tag = "1")]
    host: String,
    #[prost(oneof = "Question", tags = "3, 4, 5, 6, 7")]
    question: Option<Question>,
}

/// What is asked for.
#[derive(Clone, PartialEq, Oneof)]
enum Question {
    #[prost(string, tag = "3")]
    FileByFilename(String),
    #[prost(string, tag = "4")]
    FileContainingSymbol(String),
    #[prost(message, tag = "5")]
    FileContainingExtension(ExtensionRequest),
    #[prost(string, tag = "6")]
    AllExtensionNumbersOfType(String),
    #[prost(string, tag = "7")]
    ListServices(String),
}

/// An extension of a message; there are none.
#[derive(Clone, PartialEq, Message)]
struct ExtensionRequest {
    #[prost(string, tag = "1")]
    containing_type: String,
    #[prost(int32, tag = "2")]
    extension_number: i32,
}

/// An answer.
#[derive(Clone, PartialEq, Message)]
struct ServerReflectionResponse {
    #[prost(string, tag = "1")]
    valid_host: String,
    #[prost(message, optional, tag = "2")]
    original_request: Option<ServerReflectionRequest>,
    #[prost(oneof = "Told", tags = "4, 5, 6, 7")]
    told: Option<Told>,
}

/// What is told.
#[derive(Clone, PartialEq, Oneof)]
enum Told {
    #[prost(message, tag = "4")]
    Files(FileDescriptorResponse),
    #[prost(message, tag = "5")]
    Extensions(ExtensionNumberResponse),
    #[prost(message, tag = "6")]
    Services(ListServiceResponse),
    #[prost(message, tag = "7")]
    Error(ErrorResponse),
}

/// A file and all that it needs.
#[derive(Clone, PartialEq, Message)]
struct FileDescriptorResponse {
    #[prost(bytes = "vec", repeated, tag = "1")]
    file_descriptor_proto: Vec<Vec<u8>>,
}

/// Numbers of extensions.
#[derive(Clone, PartialEq, Message)]
struct ExtensionNumberResponse {
    #[prost(string, tag = "1")]
    base_type_name: String,
    #[prost(int32, repeated, tag = "2")]
    extension_number: Vec<i32>,
}

/// Every service.
#[derive(Clone, PartialEq, Message)]
struct ListServiceResponse {
    #[prost(message, repeated, tag = "1")]
    service: Vec<ServiceResponse>,
}

/// One service.
#[derive(Clone, PartialEq, Message)]
struct ServiceResponse {
    #[prost(string, tag = "1")]
    name: String,
}

/// Why there is no answer.
#[derive(Clone, PartialEq, Message)]
struct ErrorResponse {
    #[prost(int32, tag = "1")]
    error_code: i32,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// An answer in two parts, which are one message.
#[derive(Debug)]
pub struct Answer {
    head: Vec<u8>,
    files: Bytes,
}

impl Answer {
    /// The message in pieces, with its prefix.
    pub fn message(self) -> [Bytes; 2] {
        let len = (self.head.len() + self.files.len()) as u32;
        [[&[0][..], &len.to_be_bytes(), &self.head].concat().into(), self.files]
    }
}

/// What there is to tell.
pub struct Reflection {
    services: Vec<String>,
    files: Vec<FileDescriptorProto>,
    /// What is told about each file, encoded: it is long, and strangers who ask for it again and again share it.
    told: Vec<Bytes>,
    by_name: HashMap<String, usize>,
    /// The file of each message, enumeration, service and method.
    by_symbol: HashMap<String, usize>,
}

impl Reflection {
    /// What is served, under an alias of the package as well.
    pub fn new(alias: Option<&str>) -> Reflection {
        let mut files = FileDescriptorSet::decode(DESCRIPTORS).unwrap_or_default().file;
        if let Some(alias) = alias {
            let ours = files.iter().filter(|file| file.package() == PACKAGE);
            let renamed: Vec<_> = ours.map(|file| renamed(file.clone(), alias)).collect();
            files.extend(renamed);
        }
        let mut reflection = Reflection {
            services: Vec::new(),
            files: Vec::new(),
            told: Vec::new(),
            by_name: HashMap::new(),
            by_symbol: HashMap::new(),
        };
        for file in files {
            reflection.add(file);
        }
        reflection.services.sort_unstable();
        reflection.told = (0..reflection.files.len()).map(|place| reflection.with_needed(place)).collect();
        reflection
    }

    fn add(&mut self, file: FileDescriptorProto) {
        let place = self.files.len();
        let package = file.package().to_owned();
        for service in &file.service {
            let name = format!("{package}.{}", service.name());
            for method in &service.method {
                self.by_symbol.insert(format!("{name}.{}", method.name()), place);
            }
            self.by_symbol.insert(name.clone(), place);
            self.services.push(name);
        }
        for inner in &file.enum_type {
            self.by_symbol.insert(format!("{package}.{}", inner.name()), place);
        }
        for message in &file.message_type {
            self.add_message(&package, message, place);
        }
        self.by_name.insert(file.name().to_owned(), place);
        self.files.push(file);
    }

    fn add_message(&mut self, scope: &str, message: &DescriptorProto, place: usize) {
        let name = format!("{scope}.{}", message.name());
        for inner in &message.enum_type {
            self.by_symbol.insert(format!("{name}.{}", inner.name()), place);
        }
        for inner in &message.nested_type {
            self.add_message(&name, inner, place);
        }
        self.by_symbol.insert(name, place);
    }

    /// Answers a question.
    ///
    /// # Errors
    /// It is none.
    pub fn answer(&self, question: &[u8]) -> Result<Answer, Fault> {
        let request = ServerReflectionRequest::decode(question).map_err(|_| {
            let text = "ServerReflectionRequest: not a message of that kind";
            Fault::Status(Status::new(Code::InvalidArgument, text))
        })?;
        let told = match &request.question {
            Some(Question::ListServices(_)) => {
                let name = |name: &String| ServiceResponse { name: name.clone() };
                Told::Services(ListServiceResponse { service: self.services.iter().map(name).collect() })
            }
            Some(Question::FileByFilename(name)) => match self.by_name.get(name) {
                Some(place) => return Ok(self.files(request, *place)),
                None => error(Code::NotFound, format!("unknown file {}", quoted(name))),
            },
            Some(Question::FileContainingSymbol(symbol)) => {
                match self.by_symbol.get(symbol.trim_start_matches('.')) {
                    Some(place) => return Ok(self.files(request, *place)),
                    None => error(Code::NotFound, format!("unknown symbol {}", quoted(symbol))),
                }
            }
            Some(Question::FileContainingExtension(asked)) => {
                error(Code::NotFound, format!("{} has no extensions", quoted(&asked.containing_type)))
            }
            Some(Question::AllExtensionNumbersOfType(name)) => match self.by_symbol.contains_key(name) {
                true => Told::Extensions(ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number: Vec::new(),
                }),
                false => error(Code::NotFound, format!("unknown symbol {}", quoted(name))),
            },
            None => error(Code::InvalidArgument, "nothing is asked for".to_owned()),
        };
        Ok(Answer { head: head(request, Some(told)), files: Bytes::new() })
    }

    fn files(&self, request: ServerReflectionRequest, place: usize) -> Answer {
        Answer { head: head(request, None), files: self.told[place].clone() }
    }

    /// What is told about a file: the part of an answer that has it, and everything that it needs, so that one question is enough.
    fn with_needed(&self, place: usize) -> Bytes {
        let mut places = vec![place];
        let mut at = 0;
        while let Some(place) = places.get(at) {
            let needed = self.files[*place].dependency.iter().filter_map(|name| self.by_name.get(name));
            let new: Vec<usize> = needed.copied().filter(|place| !places.contains(place)).collect();
            places.extend(new);
            at += 1;
        }
        let files = places.into_iter().map(|place| self.files[place].encode_to_vec()).collect();
        let told = Some(Told::Files(FileDescriptorResponse { file_descriptor_proto: files }));
        ServerReflectionResponse { told, ..Default::default() }.encode_to_vec().into()
    }
}

/// What comes before the files of an answer, or is all of it.
fn head(request: ServerReflectionRequest, told: Option<Told>) -> Vec<u8> {
    let valid_host = request.host.clone();
    ServerReflectionResponse { valid_host, original_request: Some(request), told }.encode_to_vec()
}

fn error(code: Code, error_message: String) -> Told {
    Told::Error(ErrorResponse { error_code: code as i32, error_message })
}

/// A file of the package as one of another package.
fn renamed(mut file: FileDescriptorProto, alias: &str) -> FileDescriptorProto {
    let path =
        |name: &str| format!("{}/{}", alias.replace('.', "/"), name.rsplit('/').next().unwrap_or(name));
    let of_type = |name: &mut Option<String>| {
        if let Some(name) = name
            && let Some(rest) = name.strip_prefix(&format!(".{PACKAGE}."))
        {
            *name = format!(".{alias}.{rest}");
        }
    };
    fn fields(message: &mut DescriptorProto, of_type: &impl Fn(&mut Option<String>)) {
        message.field.iter_mut().for_each(|field| of_type(&mut field.type_name));
        message.nested_type.iter_mut().for_each(|inner| fields(inner, of_type));
    }
    file.name = file.name.map(|name| path(&name));
    file.package = Some(alias.to_owned());
    file.dependency.iter_mut().for_each(|name| *name = path(name));
    file.message_type.iter_mut().for_each(|message| fields(message, &of_type));
    for method in file.service.iter_mut().flat_map(|service| &mut service.method) {
        of_type(&mut method.input_type);
        of_type(&mut method.output_type);
    }
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(answer: Answer) -> ServerReflectionResponse {
        let message = answer.message().concat();
        assert_eq!(message[..5], [&[0][..], &(message.len() as u32 - 5).to_be_bytes()].concat());
        ServerReflectionResponse::decode(&message[5..]).unwrap()
    }

    fn told(reflection: &Reflection, question: Question) -> Told {
        let request = ServerReflectionRequest { host: "h".to_owned(), question: Some(question) };
        let answer = decoded(reflection.answer(&request.encode_to_vec()).unwrap());
        assert_eq!((answer.valid_host.as_str(), answer.original_request), ("h", Some(request)));
        answer.told.unwrap()
    }

    fn files(told: Told) -> Vec<String> {
        let Told::Files(files) = told else { panic!("{told:?}") };
        let name = |bytes: Vec<u8>| FileDescriptorProto::decode(&bytes[..]).unwrap().name().to_owned();
        files.file_descriptor_proto.into_iter().map(name).collect()
    }

    #[test]
    fn services_and_their_files() {
        let reflection = Reflection::new(Some("acme.v2"));
        let Told::Services(list) = told(&reflection, Question::ListServices(String::new())) else { panic!() };
        let names: Vec<_> = list.service.into_iter().map(|service| service.name).collect();
        let expected = [
            "acme.v2.VectorService",
            "grpc.health.v1.Health",
            "grpc.reflection.v1.ServerReflection",
            "grpc.reflection.v1alpha.ServerReflection",
            "svc.v1.VectorService",
        ];
        assert_eq!(names, expected);
        for (package, folder) in [("svc.v1", "svc/v1"), ("acme.v2", "acme/v2")] {
            for symbol in ["VectorService", "VectorService.Search", "SearchRequest", "QueryMode"] {
                let symbol = Question::FileContainingSymbol(format!("{package}.{symbol}"));
                let found = files(told(&reflection, symbol));
                assert!(found.iter().all(|name| name.starts_with(folder)), "{found:?}");
            }
            let whole = files(told(&reflection, Question::FileByFilename(format!("{folder}/service.proto"))));
            assert_eq!((whole.len(), whole[0].as_str()), (10, &*format!("{folder}/service.proto")));
        }
        let nested = "grpc.health.v1.HealthCheckResponse.ServingStatus".to_owned();
        assert_eq!(files(told(&reflection, Question::FileContainingSymbol(nested))).len(), 1);
    }

    #[test]
    fn no_name_of_the_package_is_left_in_the_files_of_an_alias() {
        let reflection = Reflection::new(Some("acme"));
        for file in reflection.files.iter().filter(|file| file.package() == "acme") {
            let encoded = file.encode_to_vec();
            let mentions = |text: &[u8]| encoded.windows(text.len()).any(|window| window == text);
            assert!(!mentions(b"svc.v1") && !mentions(b"svc/v1"), "{}", file.name());
        }
    }

    #[test]
    fn what_is_not_there() {
        let reflection = Reflection::new(None);
        let code = |question| match told(&reflection, question) {
            Told::Error(error) => error.error_code,
            other => panic!("{other:?}"),
        };
        for question in [
            Question::FileByFilename("svc/v1/other.proto".to_owned()),
            Question::FileContainingSymbol("acme.v2.VectorService".to_owned()),
            Question::FileContainingExtension(ExtensionRequest::default()),
            Question::AllExtensionNumbersOfType("x".to_owned()),
        ] {
            assert_eq!(code(question), Code::NotFound as i32);
        }
        let of_message = Question::AllExtensionNumbersOfType("svc.v1.Config".to_owned());
        assert!(matches!(told(&reflection, of_message), Told::Extensions(_)));
        assert!(reflection.answer(&[0xff]).is_err());
        let nothing = decoded(reflection.answer(&[]).unwrap());
        assert!(matches!(nothing.told, Some(Told::Error(error)) if error.error_code == 3));
    }
}
