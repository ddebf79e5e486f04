-- INIC's frames: an id of the assembly, the paper's header in one of two formats, data, and a CRC-32 of all these.
-- Loaded by niclab.lua. Wire format: device/model/src/models/inic/wire.rs.

local check_sequence = (...).crc32

local PROTOCOL = 9
local ENVELOPE_BYTES = 4
local CHECK_BYTES = 4
local MASK_BITS = 32

local inic = Proto("niclab_inic", "niclab INIC frame")

-- The format's highest bit: a message between cards for a group operation.
local FOR_CARD = 0x80

-- The ids of the bundled assemblies before any firmware reload: 16 bits of their images' checksums. Each reload adds
-- STEP to a number that is XORed to the id; INVERSE is the inverse of STEP modulo 2^16.
local ASSEMBLIES = {
    [0xeb03] = "conf1", [0x65b6] = "conf2", [0x8137] = "conf3", [0x3942] = "conf4", [0xbfc0] = "unreliable_ordered",
    [0x6bf6] = "selective_repeat", [0xe821] = "rate_controlled",
}
local STEP, INVERSE, MOST_HAND_OVERS = 0x9e37, 0x7787, 255
assert(STEP * INVERSE % 65536 == 1)

local FORMATS = { [1] = "24-bit sequence, 4-bit nodes", [2] = "8-bit sequence, 12-bit nodes" }

-- Kinds of messages between cards: device/model/src/models/inic/collectives/message.rs.
local SAID = {
    "ready", "start", "up", "down", "cast", "taken", "leave", "probe", "reset",
}
local SAID_BYTES = 28

-- The differences of the two formats. Offsets are of a field's first byte, and exclude the byte that begins the frame.
-- A word's highest bit is the first. Lengths are in units.
local LAYOUTS = {
    [1] = {
        head_bytes = ENVELOPE_BYTES + 16,
        numbers = 16777216,
        length = { shift = 23, mask = 0x1ff, unit = 4 },
        info_shift = 19,
        sequence = function(head) return head(9, 3), head(9, 3):uint() end,
        nodes = function(head)
            return head(7, 1), bit.rshift(head(7, 1):uint(), 4), bit.band(head(7, 1):uint(), 0xf)
        end,
        base = function(head) return head(13, 3), head(13, 3):uint() end,
        mask_at = 16,
    },
    [2] = {
        head_bytes = ENVELOPE_BYTES + 12,
        numbers = 256,
        length = { shift = 21, mask = 0x7ff, unit = 1 },
        info_shift = 17,
        sequence = function(head) return head(7, 1), head(7, 1):uint() end,
        nodes = function(head)
            local both = head(8, 3):uint()
            return head(8, 3), bit.rshift(both, 12), bit.band(both, 0xfff)
        end,
        base = function(head) return head(11, 1), head(11, 1):uint() end,
        mask_at = 12,
    },
}

local f = {
    protocol = ProtoField.uint8("niclab_inic.protocol", "Protocol"),
    format = ProtoField.uint8("niclab_inic.format", "Format", base.DEC, FORMATS, FOR_CARD - 1),
    assembly = ProtoField.uint16("niclab_inic.assembly", "Assembly", base.HEX),
    length = ProtoField.uint32("niclab_inic.length", "Bytes of data"),
    has_ack = ProtoField.bool("niclab_inic.has_ack", "Acknowledges"),
    has_data = ProtoField.bool("niclab_inic.has_data", "Data follows"),
    is_last = ProtoField.bool("niclab_inic.is_last", "Last packet of its message"),
    is_again = ProtoField.bool("niclab_inic.is_again", "Sent again"),
    kind = ProtoField.string("niclab_inic.kind", "Kind"),
    sequence = ProtoField.uint32("niclab_inic.sequence", "Sequence"),
    source_node = ProtoField.uint16("niclab_inic.source_node", "Source node"),
    destination_node = ProtoField.uint16("niclab_inic.destination_node", "Destination node"),
    ack_base = ProtoField.uint32("niclab_inic.ack_base", "Acknowledged: this packet and all before"),
    ack_mask = ProtoField.uint32("niclab_inic.ack_mask", "Mask of those behind it", base.HEX),
    received = ProtoField.uint32("niclab_inic.received", "Has arrived"),
    missing = ProtoField.uint32("niclab_inic.missing", "Is missing, and one behind it has arrived"),
    data = ProtoField.bytes("niclab_inic.data", "Data"),
    assembly_name = ProtoField.string("niclab_inic.assembly_name", "Most likely of"),
    hand_overs = ProtoField.uint16("niclab_inic.hand_overs", "Hand-overs before"),
    for_card = ProtoField.bool("niclab_inic.for_card", "Said by one card to another"),
    said = ProtoField.uint8("niclab_inic.said", "Says", base.DEC, SAID),
    code = ProtoField.uint8("niclab_inic.code", "Operator and element, or reason", base.HEX),
    root = ProtoField.uint16("niclab_inic.root", "Root"),
    group = ProtoField.uint32("niclab_inic.group", "Group"),
    to_membership = ProtoField.uint32("niclab_inic.to_membership", "To membership"),
    from_membership = ProtoField.uint32("niclab_inic.from_membership", "From membership"),
    message = ProtoField.uint32("niclab_inic.message", "Message of these memberships"),
    operation = ProtoField.uint32("niclab_inic.operation", "Operation"),
    operation_bytes = ProtoField.uint32(
        "niclab_inic.operation_bytes", "Bytes of the operation, or sum over the members"),
    check = ProtoField.uint32("niclab_inic.check", "CRC-32", base.HEX),
    check_ok = ProtoField.bool("niclab_inic.check_ok", "CRC-32 is right"),
}
inic.fields = f

local bad_check = ProtoExpert.new("niclab_inic.bad_check", "Wrong CRC-32", expert.group.CHECKSUM, expert.severity.ERROR)
local bad_length = ProtoExpert.new(
    "niclab_inic.bad_length", "Length differs from its header, or unknown format", expert.group.MALFORMED,
    expert.severity.ERROR)
local bad_mask = ProtoExpert.new(
    "niclab_inic.bad_mask", "The mask's lowest bit is that of the packet that is missing", expert.group.MALFORMED,
    expert.severity.WARN)
inic.experts = { bad_check, bad_length, bad_mask }

local function has(word, place)
    return bit.band(bit.rshift(word, place), 1) == 1
end

-- Adds the packets after the base that have arrived, and the missing ones before the last of them. Numbers wrap.
local function add_acknowledged(tree, layout, head)
    local base_range, base = layout.base(head)
    local mask_range = head(layout.mask_at, 4)
    local mask = mask_range:uint()
    local ack = tree:add(inic, mask_range, "Acknowledged")
    ack:add(f.ack_base, base_range, base)
    ack:add(f.ack_mask, mask_range)
    local furthest = -1
    for place = 0, MASK_BITS - 1 do
        furthest = has(mask, place) and place or furthest
    end
    local lost = {}
    for place = 0, furthest do
        local number = (base + 1 + place) % layout.numbers
        if has(mask, place) then
            ack:add(f.received, mask_range, number)
        else
            ack:add(f.missing, mask_range, number)
            lost[#lost + 1] = number
        end
    end
    if has(mask, 0) then
        ack:add_proto_expert_info(bad_mask)
    end
    return "acknowledges up to " .. base .. (#lost > 0 and ", without " .. table.concat(lost, ", ") or "")
end

-- Adds the frame's bundled assembly and the number of firmware reloads. If several fit, the one with the fewest
-- reloads.
local function add_assembly(tree, range)
    local found, fewest
    for id, name in pairs(ASSEMBLIES) do
        local hand_overs = bit.bxor(range:uint(), id) * INVERSE % 65536
        if hand_overs <= (fewest or MOST_HAND_OVERS) then
            found, fewest = name, hand_overs
        end
    end
    if found then
        tree:add(f.assembly_name, range, found):set_generated()
        tree:add(f.hand_overs, range, fewest):set_generated()
    end
end

-- Adds the head of a message between cards; returns its summary.
local function add_said(tree, said)
    local head = tree:add(inic, said, "Between cards")
    head:add(f.said, said(0, 1))
    head:add(f.code, said(1, 1))
    head:add(f.root, said(2, 2))
    local fields = { f.group, f.to_membership, f.from_membership, f.message, f.operation, f.operation_bytes }
    for place, field in ipairs(fields) do
        head:add(field, said(4 * place, 4))
    end
    return string.format(", %s of group %u", SAID[said(0, 1):uint()] or "nothing known", said(4, 4):uint())
end

local function kind_of(has_data, is_last, is_again)
    if has_data then
        return is_again and "packet, again" or "packet"
    end
    return (is_last or is_again) and "void packet" or "acknowledgement"
end

function inic.dissector(buffer, pinfo, root)
    pinfo.cols.protocol = "INIC"
    local tree = root:add(inic, buffer())
    local bytes = buffer:len()
    local layout = bytes > ENVELOPE_BYTES and LAYOUTS[bit.band(buffer(1, 1):uint(), FOR_CARD - 1)]
    if not layout or bytes < layout.head_bytes + CHECK_BYTES then
        tree:add_proto_expert_info(bad_length)
        return bytes
    end
    tree:add(f.protocol, buffer(0, 1))
    local is_for_card = bit.band(buffer(1, 1):uint(), FOR_CARD) ~= 0
    tree:add(f.format, buffer(1, 1))
    tree:add(f.for_card, buffer(1, 1), is_for_card)
    tree:add(f.assembly, buffer(2, 2))
    add_assembly(tree, buffer(2, 2))
    local first = buffer(4, 4)
    local word = first:uint()
    local data_bytes = bit.band(bit.rshift(word, layout.length.shift), layout.length.mask) * layout.length.unit
    tree:add(f.length, first, data_bytes)
    local info = bit.rshift(word, layout.info_shift)
    local has_ack, has_data, is_last, is_again = has(info, 3), has(info, 2), has(info, 1), has(info, 0)
    tree:add(f.has_ack, first, has_ack)
    tree:add(f.has_data, first, has_data)
    tree:add(f.is_last, first, is_last)
    tree:add(f.is_again, first, is_again)
    local kind = kind_of(has_data, is_last, is_again)
    tree:add(f.kind, first, kind):set_generated()
    local node_range, source, destination = layout.nodes(buffer)
    tree:add(f.source_node, node_range, source)
    tree:add(f.destination_node, node_range, destination)
    local sequence_range, sequence = layout.sequence(buffer)
    local what = kind
    if kind ~= "acknowledgement" then
        tree:add(f.sequence, sequence_range, sequence)
        what = string.format("%s %u%s", kind, sequence, is_last and ", the last of its message" or "")
    end
    if has_ack then
        what = what .. ", " .. add_acknowledged(tree, layout, buffer)
    end
    local covered = bytes - CHECK_BYTES
    if covered > layout.head_bytes then
        local data = buffer(layout.head_bytes, covered - layout.head_bytes)
        tree:add(f.data, data)
        if is_for_card and data:len() >= SAID_BYTES then
            what = what .. add_said(tree, data)
        end
    end
    if covered - layout.head_bytes ~= data_bytes then
        tree:add_proto_expert_info(bad_length)
    end
    local check = buffer(covered, CHECK_BYTES)
    local is_right = bit.tobit(check_sequence(buffer(0, covered))) == bit.tobit(check:uint())
    tree:add(f.check, check)
    tree:add(f.check_ok, check, is_right):set_generated()
    if not is_right then
        tree:add_proto_expert_info(bad_check)
    end
    pinfo.cols.info = string.format("%u -> %u %s", source, destination, what)
    return bytes
end

return { protocol = PROTOCOL, dissector = inic }
