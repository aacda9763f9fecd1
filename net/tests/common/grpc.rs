//! A client of gRPC. Messages are JSON here and are encoded by descriptors, so that no code of the server's codec is in it.
//!
//! The crate of whole-system tests compiles this file as well.
use bytes::Bytes;
use futures_lite::future::block_on;
use h2::RecvStream;
use h2::client::SendRequest;
use http::{HeaderMap, Request, Response};
use protox::prost_reflect::prost::Message;
use protox::prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};
use serde_json::{Map, Value as Json};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The descriptors that the server has.
pub static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    let descriptors = include_bytes!("../../proto/descriptors.bin");
    DescriptorPool::decode(&descriptors[..]).unwrap()
});

/// A socket that is asked again and again.
struct Socket(TcpStream);

fn again<T>(error: io::Error, cx: &Context<'_>) -> Poll<io::Result<T>> {
    if error.kind() != ErrorKind::WouldBlock {
        return Poll::Ready(Err(error));
    }
    std::thread::sleep(Duration::from_micros(200));
    cx.waker().wake_by_ref();
    Poll::Pending
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut space = [0; 16 << 10];
        let room = into.remaining().min(space.len());
        match (&self.0).read(&mut space[..room]) {
            Ok(received) => {
                into.put_slice(&space[..received]);
                Poll::Ready(Ok(()))
            }
            Err(error) => again(error, cx),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match (&self.0).write(bytes) {
            Err(error) => again(error, cx),
            sent => Poll::Ready(sent),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _gone = self.0.shutdown(std::net::Shutdown::Write);
        Poll::Ready(Ok(()))
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    /// Status of HTTP.
    pub status: u16,
    /// Headers, and trailers where there are any.
    pub headers: HeaderMap,
    /// Messages with their prefixes.
    pub body: Vec<u8>,
}

impl Answer {
    /// The code and its sentence.
    pub fn code(&self) -> (u32, String) {
        let value = |name: &str| self.headers.get(name).map(|value| value.to_str().unwrap());
        let code = value("grpc-status").unwrap_or("99").parse().unwrap();
        let text = percent_encoding::percent_decode_str(value("grpc-message").unwrap_or(""));
        (code, text.decode_utf8().unwrap().into_owned())
    }

    /// The messages, without their prefixes.
    pub fn messages(&self) -> Vec<&[u8]> {
        let (mut rest, mut found) = (&self.body[..], Vec::new());
        while let [flag, a, b, c, d, behind @ ..] = rest {
            assert_eq!(*flag, 0, "answers are not compressed");
            let (message, after) = behind.split_at(u32::from_be_bytes([*a, *b, *c, *d]) as usize);
            found.push(message);
            rest = after;
        }
        assert!(rest.is_empty());
        found
    }
}

/// A connection.
pub struct GrpcClient {
    send: SendRequest<Bytes>,
    /// The token that calls show.
    pub token: Option<String>,
    /// The package that calls name.
    pub package: String,
}

impl GrpcClient {
    /// Connects.
    pub fn connect(address: SocketAddr) -> GrpcClient {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
        // As many as every server allows, until this one has said how many.
        let mut builder = h2::client::Builder::new();
        builder.initial_max_send_streams(100);
        // Tests leave a thousand answers untaken, where a client that has not foreseen that gives up its connection after a hundred.
        builder.data_frame_budget(1 << 20);
        let handshake = builder.handshake(Socket(stream));
        let (send, connection) = block_on(handshake).unwrap();
        // Ends with the connection.
        std::thread::spawn(move || block_on(connection));
        GrpcClient { send, token: None, package: "svc.v1".to_owned() }
    }

    /// A request that is open still: what is sent for it, and its answer.
    pub fn open(
        &self,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(h2::SendStream<Bytes>, h2::client::ResponseFuture), h2::Error> {
        let mut request = Request::post(format!("http://test{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut send = block_on(self.send.clone().ready())?;
        let (answer, stream) = send.send_request(request.body(()).unwrap(), false)?;
        Ok((stream, answer))
    }

    /// Sends a body in pieces.
    pub fn send(&self, path: &str, headers: &[(&str, &str)], pieces: &[&[u8]]) -> Result<Answer, h2::Error> {
        let (mut stream, answer) = self.open(path, headers)?;
        for piece in pieces {
            // An answer that comes early ends the stream.
            if stream.send_data(Bytes::copy_from_slice(piece), false).is_err() {
                break;
            }
        }
        let _ended = stream.send_data(Bytes::new(), true);
        block_on(whole(answer))
    }

    fn path(&self, method: &str) -> String {
        format!("/{}.VectorService/{method}", self.package)
    }

    /// Calls a method.
    pub fn answer(&self, method: &str, request: &Json, headers: &[(&str, &str)]) -> Answer {
        self.try_answer(method, request, headers).unwrap()
    }

    fn try_answer(
        &self,
        method: &str,
        request: &Json,
        headers: &[(&str, &str)],
    ) -> Result<Answer, h2::Error> {
        let token = self.token.clone();
        let mut all: Vec<(&str, &str)> = token.iter().map(|token| ("authorization", &**token)).collect();
        all.extend(headers);
        let bytes = framed(&encode(&messages_of(method).0, request));
        self.send(&self.path(method), &all, &[&bytes])
    }

    /// Calls a method: its answer, or the code and the sentence of its refusal.
    pub fn call(&self, method: &str, request: Json) -> Result<Json, (u32, String)> {
        self.try_call(method, &request).unwrap()
    }

    /// Calls a method of a server that may end meanwhile: its answer, or the code and the sentence of its refusal. The outer error is a broken
    /// connection, after which the call may or may not have been carried out.
    pub fn try_call(&self, method: &str, request: &Json) -> Result<Result<Json, (u32, String)>, h2::Error> {
        let answer = self.try_answer(method, request, &[])?;
        Ok(GrpcClient::told(method, &answer))
    }

    fn told(method: &str, answer: &Answer) -> Result<Json, (u32, String)> {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.headers["content-type"], "application/grpc");
        match (answer.code(), &answer.messages()[..]) {
            ((0, _), [message]) => Ok(decode(&messages_of(method).1, message)),
            ((0, _), others) => panic!("{method}: {} messages", others.len()),
            (refusal, messages) => {
                assert!(messages.is_empty(), "{method}: {refusal:?}");
                Err(refusal)
            }
        }
    }

    /// Calls a method that answers with a stream: its messages, and how it ended.
    pub fn stream(&self, method: &str, request: &Json) -> (Vec<Json>, (u32, String)) {
        let answer = self.answer(method, request, &[]);
        let of = messages_of(method).1;
        (answer.messages().iter().map(|message| decode(&of, message)).collect(), answer.code())
    }

    /// Expects a refusal whose sentence holds `fragment`.
    #[track_caller]
    pub fn refused(&self, method: &str, request: Json, code: u32, fragment: &str) {
        let told = self.call(method, request.clone()).expect_err(fragment);
        assert!(told.0 == code && told.1.contains(fragment), "{method} {request}: {told:?} lacks {fragment}");
    }
}

/// A whole answer.
pub async fn whole(answer: h2::client::ResponseFuture) -> Result<Answer, h2::Error> {
    taken(answer.await?).await
}

/// The whole of an answer that has begun.
pub async fn taken(answer: Response<RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut body) = answer.into_parts();
    let mut answer = Answer { status: head.status.as_u16(), headers: head.headers, body: Vec::new() };
    while let Some(data) = poll_fn(|cx| body.poll_data(cx)).await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        answer.body.extend_from_slice(&data);
    }
    if let Some(trailers) = body.trailers().await? {
        answer.headers.extend(trailers);
    }
    Ok(answer)
}

/// A message behind its prefix.
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &(message.len() as u32).to_be_bytes(), message].concat()
}

/// What a method takes and gives.
pub fn messages_of(method: &str) -> (MessageDescriptor, MessageDescriptor) {
    let service = POOL.get_service_by_name("svc.v1.VectorService").unwrap();
    let method = service.methods().find(|found| found.name() == method).expect(method);
    (method.input(), method.output())
}

/// A message from JSON.
pub fn encode(of: &MessageDescriptor, json: &Json) -> Vec<u8> {
    message(of, json).encode_to_vec()
}

fn message(of: &MessageDescriptor, json: &Json) -> DynamicMessage {
    let mut made = DynamicMessage::new(of.clone());
    for (name, json) in json.as_object().unwrap() {
        let field = of.get_field_by_name(name).unwrap_or_else(|| panic!("{} has no {name}", of.name()));
        made.set_field(&field, value(&field, json));
    }
    made
}

fn value(field: &FieldDescriptor, json: &Json) -> Value {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else { panic!() };
        let of = entry.map_entry_value_field();
        let entries = json.as_object().unwrap().iter();
        let entries = entries.map(|(key, json)| (MapKey::String(key.clone()), one(&of.kind(), json)));
        return Value::Map(entries.collect::<HashMap<_, _>>());
    }
    match field.is_list() {
        true => Value::List(json.as_array().unwrap().iter().map(|json| one(&field.kind(), json)).collect()),
        false => one(&field.kind(), json),
    }
}

fn one(kind: &Kind, json: &Json) -> Value {
    match kind {
        Kind::Double => Value::F64(json.as_f64().unwrap()),
        Kind::Float => Value::F32(json.as_f64().unwrap() as f32),
        Kind::Int32 => Value::I32(json.as_i64().unwrap() as i32),
        Kind::Int64 => Value::I64(json.as_i64().unwrap()),
        Kind::Uint32 => Value::U32(json.as_u64().unwrap() as u32),
        Kind::Uint64 => Value::U64(json.as_u64().unwrap()),
        Kind::Bool => Value::Bool(json.as_bool().unwrap()),
        Kind::String => Value::String(json.as_str().unwrap().to_owned()),
        // As an array of numbers.
        Kind::Bytes => {
            let bytes = json.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8);
            Value::Bytes(bytes.collect())
        }
        Kind::Enum(_) => Value::EnumNumber(json.as_i64().unwrap() as i32),
        Kind::Message(of) => Value::Message(message(of, json)),
        other => panic!("{other:?} is in no message"),
    }
}

/// JSON of a message: fields that are not there are not in it, and neither are zeros.
pub fn decode(of: &MessageDescriptor, bytes: &[u8]) -> Json {
    json_of(&DynamicMessage::decode(of.clone(), bytes).unwrap())
}

fn json_of(message: &DynamicMessage) -> Json {
    assert_eq!(message.unknown_fields().count(), 0, "{message:?}");
    let fields = message.fields().map(|(field, value)| (field.name().to_owned(), json(value)));
    Json::Object(fields.collect::<Map<_, _>>())
}

fn json(value: &Value) -> Json {
    match value {
        Value::Bool(flag) => Json::from(*flag),
        Value::I32(number) => Json::from(*number),
        Value::I64(number) => Json::from(*number),
        Value::U32(number) => Json::from(*number),
        Value::U64(number) => Json::from(*number),
        Value::F32(number) => Json::from(*number),
        Value::F64(number) => Json::from(*number),
        Value::String(text) => Json::from(text.as_str()),
        Value::EnumNumber(number) => Json::from(*number),
        Value::Message(message) => json_of(message),
        Value::List(list) => list.iter().map(json).collect(),
        Value::Map(map) => {
            let entries = map.iter().map(|(key, value)| (key.as_str().unwrap().to_owned(), json(value)));
            Json::Object(entries.collect())
        }
        Value::Bytes(bytes) => bytes.iter().copied().collect(),
    }
}
