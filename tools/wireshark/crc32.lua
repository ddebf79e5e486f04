-- Ethernet's CRC-32 (ISO-HDLC), at the end of several models' frames. Loaded by niclab.lua for their dissectors.

local function step(crc, byte)
    crc = bit.bxor(crc, byte)
    for _ = 1, 8 do
        local carry = bit.band(crc, 1) ~= 0
        crc = bit.rshift(crc, 1)
        if carry then
            crc = bit.bxor(crc, 0xedb88320)
        end
    end
    return crc
end

-- The CRC-32 of the bytes of these consecutive ranges, as a number of `bit`, which may be negative.
return function(...)
    local crc = bit.bnot(0)
    for _, range in ipairs({ ... }) do
        for i = 0, range:len() - 1 do
            crc = step(crc, range(i, 1):uint())
        end
    end
    return bit.bnot(crc)
end
