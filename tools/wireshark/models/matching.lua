-- Frames of the Match NIC: words of eight bytes, most significant byte first, with one check word.
-- Loaded by niclab.lua. Wire format: device/model/src/models/matching/wire.rs.

local PROTOCOL = 3
local WORD_BYTES = 8
local MATCH_LINK_WORDS = 3
local MATCH_HEADER_WORDS = 8
local MATCH_PLACE_WORDS = 2

local MATCH_KINDS = {
    [1] = "first",
    [2] = "more",
    [3] = "acknowledgement",
    [4] = "void",
}

-- Number of words of each kind before the data.
local MATCH_HEAD_WORDS = {
    [1] = MATCH_LINK_WORDS + MATCH_HEADER_WORDS,
    [2] = MATCH_LINK_WORDS + MATCH_PLACE_WORDS,
    [3] = MATCH_LINK_WORDS,
    [4] = MATCH_LINK_WORDS + 1,
}

local MATCH_OPERATIONS = {
    [1] = "put",
    [2] = "get",
    [3] = "ack",
    [4] = "reply",
}

local match = Proto("niclab_match", "niclab Match frame")

local m = {
    protocol = ProtoField.uint8("niclab_match.protocol", "Protocol"),
    version = ProtoField.uint8("niclab_match.version", "Version"),
    kind = ProtoField.uint8("niclab_match.kind", "Kind", base.DEC, MATCH_KINDS),
    asks = ProtoField.bool("niclab_match.asks", "Asks for an acknowledgement", 8, nil, 0x01),
    sequence = ProtoField.uint32("niclab_match.sequence", "Sequence"),
    destination_node = ProtoField.uint16("niclab_match.destination_node", "Destination node"),
    source_node = ProtoField.uint16("niclab_match.source_node", "Source node"),
    acknowledged = ProtoField.uint32("niclab_match.acknowledged", "Acknowledged: all frames before"),
    check = ProtoField.uint64("niclab_match.check", "Check word", base.HEX),
    check_ok = ProtoField.bool("niclab_match.check_ok", "Check word is right"),
    match_bits = ProtoField.uint64("niclab_match.match_bits", "Match bits", base.HEX),
    source_port = ProtoField.uint16("niclab_match.source_port", "Source port"),
    operation = ProtoField.uint16("niclab_match.operation", "Operation", base.DEC, MATCH_OPERATIONS),
    bytes = ProtoField.uint64("niclab_match.bytes", "Bytes of the message"),
    offset = ProtoField.uint64("niclab_match.offset", "Offset"),
    header_data = ProtoField.uint64("niclab_match.header_data", "Header data", base.HEX),
    token = ProtoField.uint64("niclab_match.token", "Initiator's token", base.HEX),
    target_port = ProtoField.uint8("niclab_match.target_port", "Target port"),
    portal = ProtoField.uint8("niclab_match.portal", "Portal"),
    wants_answer = ProtoField.bool("niclab_match.wants_answer", "Wants an answer", 16, nil, 0x01),
    interrupt = ProtoField.bool("niclab_match.interrupt", "Interrupt the receiver's host", 16, nil, 0x02),
    message = ProtoField.uint32("niclab_match.message", "Message"),
    result = ProtoField.uint64("niclab_match.result", "Result"),
    data = ProtoField.bytes("niclab_match.data", "Data"),
}
match.fields = m

local bad_check =
    ProtoExpert.new("niclab_match.bad_check", "Wrong check word", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_match_kind = ProtoExpert.new(
    "niclab_match.bad_kind", "Unknown kind, or too short for its kind", expert.group.MALFORMED, expert.severity.ERROR)
match.experts = { bad_check, bad_match_kind }

-- Whether the ones' complement sum of all words, the last one padded with zeros, is all ones. The sum uses half words,
-- which every Lua's numbers represent exactly.
local function is_check_right(buffer)
    local HALF = 4294967296
    local halves = { 0, 0 }
    for place = 0, buffer:len() - 1, 4 do
        local count = math.min(4, buffer:len() - place)
        local half = buffer(place, count):uint() * 256 ^ (4 - count)
        local side = place % WORD_BYTES == 0 and 1 or 2
        halves[side] = halves[side] + half
    end
    local upper, lower = halves[1], halves[2]
    while upper >= HALF or lower >= HALF do
        local up, around = math.floor(lower / HALF), math.floor(upper / HALF)
        upper, lower = upper % HALF + up, lower % HALF + around
    end
    return upper == HALF - 1 and lower == HALF - 1
end

local function add_link(tree, buffer)
    local link = tree:add(match, buffer(0, MATCH_LINK_WORDS * WORD_BYTES), "Link")
    link:add(m.protocol, buffer(0, 1))
    link:add(m.version, buffer(1, 1))
    link:add(m.kind, buffer(2, 1))
    link:add(m.asks, buffer(3, 1))
    link:add(m.sequence, buffer(4, 4))
    link:add(m.destination_node, buffer(8, 2))
    link:add(m.source_node, buffer(10, 2))
    link:add(m.acknowledged, buffer(12, 4))
    link:add(m.check, buffer(16, 8))
    local is_right = is_check_right(buffer)
    link:add(m.check_ok, buffer(16, 8), is_right):set_generated()
    if not is_right then
        link:append_text(" [wrong check word]")
        link:add_proto_expert_info(bad_check)
    end
end

local function add_message_header(tree, words)
    local header = tree:add(match, words, "Header")
    header:add(m.match_bits, words(0, 8))
    header:add(m.source_port, words(12, 2))
    header:add(m.operation, words(14, 2))
    header:add(m.bytes, words(16, 8))
    header:add(m.offset, words(24, 8))
    header:add(m.header_data, words(32, 8))
    header:add(m.token, words(40, 8))
    header:add(m.target_port, words(48, 1))
    header:add(m.portal, words(49, 1))
    header:add(m.wants_answer, words(50, 2))
    header:add(m.interrupt, words(50, 2))
    header:add(m.message, words(52, 4))
    header:add(m.result, words(56, 8))
    return string.format(
        "%s, port %u to port %u portal %u, message %u, %s bytes",
        MATCH_OPERATIONS[words(14, 2):uint()] or "unknown operation", words(12, 2):uint(), words(48, 1):uint(),
        words(49, 1):uint(), words(52, 4):uint(), tostring(words(16, 8):uint64()))
end

local function add_place(tree, words, has_offset)
    local place = tree:add(match, words, "Place in the message")
    place:add(m.source_port, words(0, 2))
    place:add(m.message, words(4, 4))
    local text = string.format("port %u, message %u", words(0, 2):uint(), words(4, 4):uint())
    if has_offset then
        place:add(m.offset, words(8, 8))
        text = text .. ", from byte " .. tostring(words(8, 8):uint64())
    end
    return text
end

function match.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "Match"
    local tree = root:add(match, buffer())
    local bytes = buffer:len()
    local kind = bytes > 2 and buffer(2, 1):uint()
    local head_bytes = (MATCH_HEAD_WORDS[kind] or 0) * WORD_BYTES
    if head_bytes == 0 or bytes < head_bytes then
        tree:add_proto_expert_info(bad_match_kind)
        return bytes
    end
    add_link(tree, buffer)
    local words = head_bytes > MATCH_LINK_WORDS * WORD_BYTES
        and buffer(MATCH_LINK_WORDS * WORD_BYTES, head_bytes - MATCH_LINK_WORDS * WORD_BYTES)
    local what = "all before frame " .. buffer(12, 4):uint()
    if kind == 1 then
        what = add_message_header(tree, words)
    elseif words then
        what = add_place(tree, words, kind == 2)
    end
    if bytes > head_bytes then
        tree:add(m.data, buffer(head_bytes))
    end
    pinfo.cols.info = string.format(
        "%u -> %u %s: %s, frame %u",
        buffer(10, 2):uint(), buffer(8, 2):uint(), MATCH_KINDS[kind], what, buffer(4, 4):uint())
    return bytes
end

return { protocol = PROTOCOL, dissector = match }
